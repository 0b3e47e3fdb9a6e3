// Bindings of roiaware_pool3d.cu.
#include "roiaware_pool3d.h"

#include <tuple>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

// Counts the points of each box, then lists them: one read of the host.
template <typename T>
std::tuple<Tensor, Tensor> assign(const RoiCells<T>& cells,
                                  const Tensor& like, Stream stream) {
  const int64_t R = cells.num_rois;
  const int64_t num_cells = R * cells.out_x * cells.out_y * cells.out_z;
  Tensor starts =
      torch::stable::new_zeros(like, {num_cells + 1}, ScalarType::Long);
  if (R == 0 || cells.num_points == 0)
    return {starts, torch::stable::new_empty(like, {0}, ScalarType::Int)};
  Tensor counts = torch::stable::new_empty(like, {R}, ScalarType::Long);
  roiaware_count_cuda(cells, counts.mutable_data_ptr<int64_t>(), stream);
  Tensor ends = cumsum(counts);
  const int64_t P = read_int64(torch::stable::narrow(ends, 0, R - 1, 1));
  Tensor keys = torch::stable::new_empty(like, {P}, ScalarType::Long);
  Tensor points = torch::stable::new_empty(like, {P}, ScalarType::Int);
  Tensor members = torch::stable::empty_like(points);
  roiaware_list_cuda(cells, ends.const_data_ptr<int64_t>(),
                     keys.mutable_data_ptr<int64_t>(),
                     points.mutable_data_ptr<int32_t>(), stream);
  const auto sorted = stable_sort(keys);
  roiaware_index_cuda(sorted.first.const_data_ptr<int64_t>(),
                      sorted.second.const_data_ptr<int64_t>(),
                      points.const_data_ptr<int32_t>(), P, num_cells,
                      starts.mutable_data_ptr<int64_t>(),
                      members.mutable_data_ptr<int32_t>(), stream);
  return {starts, members};
}

std::tuple<Tensor, Tensor> roiaware_assign(const Tensor& rois_in,
                                           const Tensor& points_in,
                                           int64_t out_x, int64_t out_y,
                                           int64_t out_z) {
  const Launch launch(points_in);
  const Tensor rois = compute_tensor(rois_in);
  const Tensor points = compute_tensor(points_in);
  std::tuple<Tensor, Tensor> result;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "roiaware_assign", {
    const RoiCells<scalar_t> cells{rois.const_data_ptr<scalar_t>(),
                                   points.const_data_ptr<scalar_t>(),
                                   rois.size(0),
                                   points.size(0),
                                   out_x,
                                   out_y,
                                   out_z};
    result = assign(cells, points, launch);
  });
  return result;
}

std::tuple<Tensor, Tensor> roiaware_pool(const Tensor& features_in,
                                         const Tensor& starts_in,
                                         const Tensor& members_in,
                                         int64_t limit, bool take_max) {
  const Launch launch(features_in);
  const Tensor features = compute_tensor(features_in);
  const Tensor starts = torch::stable::contiguous(starts_in);
  const Tensor members = torch::stable::contiguous(members_in);
  const int64_t V = starts.size(0) - 1, C = features.size(1);
  Tensor out = torch::stable::new_empty(features, {V, C});
  Tensor argmax = torch::stable::new_empty(
      features, {take_max ? V : 0, C}, ScalarType::Int);
  const RoiMembers cells{starts.const_data_ptr<int64_t>(),
                         members.const_data_ptr<int32_t>(), V, C, limit};
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "roiaware_pool", {
    roiaware_pool_cuda(
        features.const_data_ptr<scalar_t>(), cells,
        out.mutable_data_ptr<scalar_t>(),
        take_max ? argmax.mutable_data_ptr<int32_t>() : nullptr, launch);
  });
  return {in_type(out, features_in.scalar_type()), argmax};
}

Tensor roiaware_pool_backward(const Tensor& grad_in, const Tensor& starts_in,
                              const Tensor& members_in,
                              const Tensor& argmax_in, int64_t num_points,
                              int64_t limit, bool take_max) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor starts = torch::stable::contiguous(starts_in);
  const Tensor members = torch::stable::contiguous(members_in);
  const Tensor argmax = torch::stable::contiguous(argmax_in);
  const int64_t V = starts.size(0) - 1, C = grad.size(1);
  Tensor out = torch::stable::new_zeros(grad, {num_points, C});
  const RoiMembers cells{starts.const_data_ptr<int64_t>(),
                         members.const_data_ptr<int32_t>(), V, C, limit};
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "roiaware_pool_backward", {
    roiaware_pool_backward_cuda(
        grad.const_data_ptr<scalar_t>(), cells,
        take_max ? argmax.const_data_ptr<int32_t>() : nullptr,
        out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("roiaware_assign", TORCH_BOX(&roiaware_assign));
  m.impl("roiaware_pool", TORCH_BOX(&roiaware_pool));
  m.impl("roiaware_pool_backward", TORCH_BOX(&roiaware_pool_backward));
}

}  // namespace mmturbox
