// CPU kernel of mmturbox::nms_rotated.
#include "greedy_nms.h"

namespace mmturbox {
namespace {

Tensor nms_rotated(const Tensor& boxes_in, const Tensor& scores_in,
                   double threshold) {
  Tensor boxes = torch::stable::contiguous(boxes_in);
  Tensor scores = torch::stable::contiguous(scores_in);
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "nms_rotated", {
    return to_tensor(
        greedy_keep(RotatedTest<scalar_t>(threshold),
                    boxes.const_data_ptr<scalar_t>(),
                    scores.const_data_ptr<scalar_t>(), boxes.size(0)),
        boxes);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("nms_rotated", TORCH_BOX(&nms_rotated));
}

}  // namespace mmturbox
