// Binding of the CUDA kernel of mmturbox::soft_nms; nms and nms_match are in
// batched_nms_binding.cpp.
#include "nms.h"

#include <tuple>

#include "binding.h"

namespace mmturbox {
namespace {

std::tuple<Tensor, Tensor> soft_nms(const Tensor& boxes_in,
                                    const Tensor& scores_in, double threshold,
                                    double sigma, double min_score,
                                    int64_t method, int64_t offset) {
  const Launch at(boxes_in);
  Tensor boxes = torch::stable::contiguous(boxes_in);
  const int64_t n = boxes.size(0);
  Tensor scores = torch::stable::clone(torch::stable::contiguous(scores_in));
  Tensor dets = torch::stable::new_empty(boxes, {n, 5});
  Tensor inds = torch::stable::new_empty(boxes, {n}, ScalarType::Long);
  Tensor count = torch::stable::new_empty(boxes, {1}, ScalarType::Long);
  Tensor gone = torch::stable::new_empty(boxes, {n}, ScalarType::Bool);
  const SoftNms task{n, method, offset, threshold, sigma, min_score};
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "soft_nms", {
    soft_nms_cuda(task, boxes.const_data_ptr<scalar_t>(),
                  scores.mutable_data_ptr<scalar_t>(),
                  dets.mutable_data_ptr<scalar_t>(),
                  inds.mutable_data_ptr<int64_t>(),
                  count.mutable_data_ptr<int64_t>(),
                  gone.mutable_data_ptr<bool>(), at);
  });
  const int64_t kept = read_int64(count);
  return {torch::stable::narrow(dets, 0, 0, kept),
          torch::stable::narrow(inds, 0, 0, kept)};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) { m.impl("soft_nms", TORCH_BOX(&soft_nms)); }

}  // namespace mmturbox
