// Binding of roipoint_pool3d.cu.
#include "roipoint_pool3d.h"

#include <tuple>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

std::tuple<Tensor, Tensor, Tensor> roipoint_pool3d(const Tensor& points_in,
                                                   const Tensor& features_in,
                                                   const Tensor& boxes_in,
                                                   int64_t samples) {
  const Launch launch(points_in);
  const Tensor points = torch::stable::contiguous(points_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor xyz = compute_tensor(points), boxes = compute_tensor(boxes_in);
  const int64_t B = points.size(0), M = boxes.size(1);
  const int64_t C = features.size(2);
  const RoiPointShape shape{B, points.size(1), M, samples};
  Tensor index =
      torch::stable::new_empty(points, {B, M, samples}, ScalarType::Int);
  Tensor empty = torch::stable::new_empty(points, {B, M}, ScalarType::Int);
  Tensor out = torch::stable::new_empty(features, {B, M, samples, 3 + C});
  MMTURBOX_DISPATCH_FLOAT(xyz.scalar_type(), "roipoint_pool3d", {
    roipoint_choose_cuda(xyz.const_data_ptr<scalar_t>(),
                         boxes.const_data_ptr<scalar_t>(), shape,
                         index.mutable_data_ptr<int32_t>(),
                         empty.mutable_data_ptr<int32_t>(), launch);
  });
  roipoint_copy_cuda(points.data_ptr(), features.data_ptr(),
                     index.const_data_ptr<int32_t>(), shape, C,
                     points.element_size(), out.data_ptr(), launch);
  return {out, empty, index};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("roipoint_pool3d", TORCH_BOX(&roipoint_pool3d));
}

}  // namespace mmturbox
