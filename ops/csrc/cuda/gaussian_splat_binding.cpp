// Bindings of gaussian_splat.cu.
#include "gaussian_splat.h"

#include <tuple>
#include <vector>

#include "binding.h"

namespace mmturbox {
namespace {

SplatGrid make_grid(const std::vector<double>& lower, double size,
                    const std::vector<int64_t>& cells) {
  return {{lower[0], lower[1], lower[2]},
          size,
          {cells[0], cells[1], cells[2]}};
}

// (B * N, 6) int32 that holds a SplatBox a row.
template <typename T>
Tensor make_boxes(const Tensor& means, const Tensor& radii,
                  const SplatGrid& grid, Stream stream) {
  static_assert(sizeof(SplatBox) == 6 * sizeof(int32_t), "six integers");
  Tensor boxes = torch::stable::new_empty(radii, {radii.numel(), 6});
  splat_boxes_cuda(
      means.const_data_ptr<T>(), radii.const_data_ptr<int32_t>(),
      radii.numel(), grid,
      reinterpret_cast<SplatBox*>(boxes.mutable_data_ptr<int32_t>()), stream);
  return boxes;
}

const SplatBox* boxes_of(const Tensor& boxes) {
  return reinterpret_cast<const SplatBox*>(boxes.const_data_ptr<int32_t>());
}

std::tuple<Tensor, Tensor> gaussian_splat(
    const Tensor& means_in, const Tensor& table_in,
    const Tensor& precisions_in, const Tensor& radii_in,
    std::vector<double> lower, double size, std::vector<int64_t> cells,
    bool product) {
  const Launch launch(means_in);
  Tensor means = torch::stable::contiguous(means_in);
  Tensor table = torch::stable::contiguous(table_in);
  Tensor precisions = torch::stable::contiguous(precisions_in);
  Tensor radii = torch::stable::contiguous(radii_in);
  const SplatGrid grid = make_grid(lower, size, cells);
  const SplatShape shape{means.size(0), means.size(1), table.size(2)};
  const int64_t V = grid.voxels();
  Tensor sums =
      torch::stable::new_empty(table, {shape.batch, V, shape.columns});
  Tensor rest =
      torch::stable::new_empty(table, {shape.batch, product ? V : 0});
  STD_TORCH_CHECK(!product || shape.columns > 0,
                  "gaussian_splat: a product needs a column");
  MMTURBOX_DISPATCH_FLOAT(table.scalar_type(), "gaussian_splat", {
    const Tensor boxes = make_boxes<scalar_t>(means, radii, grid, launch);
    splat_cuda(means.const_data_ptr<scalar_t>(),
               table.const_data_ptr<scalar_t>(),
               precisions.const_data_ptr<scalar_t>(), boxes_of(boxes), shape,
               grid, sums.mutable_data_ptr<scalar_t>(),
               product ? rest.mutable_data_ptr<scalar_t>() : nullptr, launch);
  });
  return {sums, rest};
}

std::tuple<Tensor, Tensor> gaussian_splat_backward(
    const Tensor& grad_in, const Tensor& grad_rest_in, const Tensor& rest_in,
    const Tensor& means_in, const Tensor& table_in,
    const Tensor& precisions_in, const Tensor& radii_in,
    std::vector<double> lower, double size, std::vector<int64_t> cells) {
  const Launch launch(means_in);
  Tensor grad = torch::stable::contiguous(grad_in);
  Tensor grad_rest = torch::stable::contiguous(grad_rest_in);
  Tensor rest = torch::stable::contiguous(rest_in);
  Tensor means = torch::stable::contiguous(means_in);
  Tensor table = torch::stable::contiguous(table_in);
  Tensor precisions = torch::stable::contiguous(precisions_in);
  Tensor radii = torch::stable::contiguous(radii_in);
  const SplatGrid grid = make_grid(lower, size, cells);
  const SplatShape shape{means.size(0), means.size(1), table.size(2)};
  const int64_t chunks = splat_chunks(shape.columns);
  Tensor grad_table = torch::stable::empty_like(table);
  Tensor moments = torch::stable::new_empty(
      means, {chunks, shape.batch, shape.gaussians, 9});
  MMTURBOX_DISPATCH_FLOAT(table.scalar_type(), "gaussian_splat_backward", {
    const Tensor boxes = make_boxes<scalar_t>(means, radii, grid, launch);
    splat_backward_cuda(
        grad.const_data_ptr<scalar_t>(), grad_rest.const_data_ptr<scalar_t>(),
        rest.numel() > 0 ? rest.const_data_ptr<scalar_t>() : nullptr,
        means.const_data_ptr<scalar_t>(), table.const_data_ptr<scalar_t>(),
        precisions.const_data_ptr<scalar_t>(), boxes_of(boxes), shape, grid,
        grad_table.mutable_data_ptr<scalar_t>(),
        moments.mutable_data_ptr<scalar_t>(), launch);
  });
  const std::vector<int64_t> dims{0};
  return {grad_table,
          torch::stable::sum(moments,
                             torch::headeronly::IntHeaderOnlyArrayRef(dims))};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("gaussian_splat", TORCH_BOX(&gaussian_splat));
  m.impl("gaussian_splat_backward", TORCH_BOX(&gaussian_splat_backward));
}

}  // namespace mmturbox
