// Binding of the CUDA kernel of mmturbox::box_iou_rotated.
#include "box_iou_rotated.h"

#include "binding.h"

namespace mmturbox {
namespace {

Tensor box_iou_rotated(const Tensor& boxes1_in, const Tensor& boxes2_in,
                       int64_t mode, bool aligned) {
  const Launch at(boxes1_in);
  Tensor boxes1 = torch::stable::contiguous(boxes1_in);
  Tensor boxes2 = torch::stable::contiguous(boxes2_in);
  const int64_t rows = boxes1.size(0), cols = boxes2.size(0);
  STD_TORCH_CHECK(!aligned || rows == cols,
                  "box_iou_rotated: aligned boxes differ in number");
  Tensor out = aligned ? torch::stable::new_empty(boxes1, {rows})
                       : torch::stable::new_empty(boxes1, {rows, cols});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "box_iou_rotated", {
    box_iou_rotated_cuda(boxes1.const_data_ptr<scalar_t>(),
                         boxes2.const_data_ptr<scalar_t>(), rows, cols, mode,
                         aligned, out.mutable_data_ptr<scalar_t>(), at);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("box_iou_rotated", TORCH_BOX(&box_iou_rotated));
}

}  // namespace mmturbox
