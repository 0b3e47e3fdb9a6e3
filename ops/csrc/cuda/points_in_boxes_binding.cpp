// Bindings of points_in_boxes.cu.
#include "points_in_boxes.h"

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

Tensor points_in_boxes_part(const Tensor& points_in, const Tensor& boxes_in) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in), boxes = compute_tensor(boxes_in);
  const int64_t B = points.size(0), M = points.size(1), T = boxes.size(1);
  STD_TORCH_CHECK(B <= 65535, "points_in_boxes: at most 65535 samples");
  Tensor out = torch::stable::new_empty(points, {B, M}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "points_in_boxes_part", {
    points_in_boxes_part_cuda(points.const_data_ptr<scalar_t>(),
                              boxes.const_data_ptr<scalar_t>(), B, M, T,
                              out.mutable_data_ptr<int32_t>(), launch);
  });
  return out;
}

Tensor points_in_boxes_all(const Tensor& points_in, const Tensor& boxes_in) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in), boxes = compute_tensor(boxes_in);
  const int64_t B = points.size(0), M = points.size(1), T = boxes.size(1);
  STD_TORCH_CHECK(B <= 65535, "points_in_boxes: at most 65535 samples");
  Tensor out = torch::stable::new_empty(points, {B, M, T}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "points_in_boxes_all", {
    points_in_boxes_all_cuda(points.const_data_ptr<scalar_t>(),
                             boxes.const_data_ptr<scalar_t>(), B, M, T,
                             out.mutable_data_ptr<int32_t>(), launch);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("points_in_boxes_part", TORCH_BOX(&points_in_boxes_part));
  m.impl("points_in_boxes_all", TORCH_BOX(&points_in_boxes_all));
}

}  // namespace mmturbox
