// Bindings of the CUDA kernels of mmturbox::rotated_overlap, its gradient and
// sort_vertices.
#include "diff_iou_rotated.h"

#include <tuple>

#include "../common/diff_iou_rotated.h"
#include "binding.h"
#include "box_iou_rotated.h"

namespace mmturbox {
namespace {

Tensor overlap_forward(const Tensor& boxes1_in, const Tensor& boxes2_in) {
  const Launch at(boxes1_in);
  Tensor boxes1 = torch::stable::contiguous(boxes1_in);
  Tensor boxes2 = torch::stable::contiguous(boxes2_in);
  const int64_t n = boxes1.size(0);
  Tensor out = torch::stable::new_empty(boxes1, {n});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "rotated_overlap", {
    box_iou_rotated_cuda(boxes1.const_data_ptr<scalar_t>(),
                         boxes2.const_data_ptr<scalar_t>(), n, n, kArea, true,
                         out.mutable_data_ptr<scalar_t>(), at);
  });
  return out;
}

std::tuple<Tensor, Tensor> overlap_backward(const Tensor& grad_in,
                                            const Tensor& boxes1_in,
                                            const Tensor& boxes2_in) {
  const Launch at(boxes1_in);
  Tensor grad = torch::stable::contiguous(grad_in);
  Tensor boxes1 = torch::stable::contiguous(boxes1_in);
  Tensor boxes2 = torch::stable::contiguous(boxes2_in);
  const int64_t n = boxes1.size(0);
  Tensor grad1 = torch::stable::new_empty(boxes1, {n, 5});
  Tensor grad2 = torch::stable::new_empty(boxes1, {n, 5});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "rotated_overlap", {
    rotated_overlap_backward_cuda(
        grad.const_data_ptr<scalar_t>(), boxes1.const_data_ptr<scalar_t>(),
        boxes2.const_data_ptr<scalar_t>(), n,
        grad1.mutable_data_ptr<scalar_t>(),
        grad2.mutable_data_ptr<scalar_t>(), at);
  });
  return {grad1, grad2};
}

Tensor sort_vertices(const Tensor& vertices_in, const Tensor& mask_in) {
  const Launch at(vertices_in);
  Tensor vertices = torch::stable::contiguous(vertices_in);
  Tensor mask = torch::stable::contiguous(mask_in);
  const int64_t n = vertices.size(0);
  Tensor out = torch::stable::new_empty(vertices, {n, kCorners + 1},
                                        ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(vertices.scalar_type(), "sort_vertices", {
    sort_vertices_cuda(vertices.const_data_ptr<scalar_t>(),
                       mask.const_data_ptr<bool>(), n,
                       out.mutable_data_ptr<int32_t>(), at);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("rotated_overlap", TORCH_BOX(&overlap_forward));
  m.impl("rotated_overlap_backward", TORCH_BOX(&overlap_backward));
  m.impl("sort_vertices", TORCH_BOX(&sort_vertices));
}

}  // namespace mmturbox
