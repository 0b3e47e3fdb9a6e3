// Bindings of group_points.cu.
#include "group_points.h"

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

Tensor gather_points(const Tensor& features_in, const Tensor& indices_in) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = features.size(0), C = features.size(1);
  const int64_t L = indices.size(1);
  Tensor out = torch::stable::new_empty(features, {B, C, L});
  gather_points_cuda(features.data_ptr(), indices.const_data_ptr<int32_t>(),
                     B * C, C, features.size(2), L, features.element_size(),
                     out.data_ptr(), launch);
  return out;
}

Tensor gather_points_backward(const Tensor& grad_in, const Tensor& indices_in,
                              int64_t N) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = grad.size(0), C = grad.size(1);
  Tensor out = torch::stable::new_zeros(grad, {B, C, N});
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "gather_points_backward", {
    gather_points_backward_cuda(
        grad.const_data_ptr<scalar_t>(), indices.const_data_ptr<int32_t>(),
        B * C, C, N, grad.size(2), out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, grad_in.scalar_type());
}

Stacked stacked_of(const Tensor& counts, const Tensor& indices,
                   const Tensor& group_counts, int64_t rows,
                   int64_t channels) {
  return {counts.const_data_ptr<int32_t>(),
          group_counts.const_data_ptr<int32_t>(),
          counts.size(0),
          rows,
          indices.size(0),
          channels,
          indices.size(1),
          indices.const_data_ptr<int32_t>()};
}

Tensor group_points_stacked(const Tensor& features_in,
                            const Tensor& counts_in, const Tensor& indices_in,
                            const Tensor& group_counts_in) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor counts = torch::stable::contiguous(counts_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const Tensor group_counts = torch::stable::contiguous(group_counts_in);
  const int64_t C = features.size(1);
  Tensor out = torch::stable::new_empty(
      features, {indices.size(0), C, indices.size(1)});
  group_points_stacked_cuda(
      features.data_ptr(),
      stacked_of(counts, indices, group_counts, features.size(0), C),
      features.element_size(), out.data_ptr(), launch);
  return out;
}

Tensor group_points_stacked_backward(const Tensor& grad_in,
                                     const Tensor& counts_in,
                                     const Tensor& indices_in,
                                     const Tensor& group_counts_in,
                                     int64_t N) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor counts = torch::stable::contiguous(counts_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const Tensor group_counts = torch::stable::contiguous(group_counts_in);
  const int64_t C = grad.size(1);
  Tensor out = torch::stable::new_zeros(grad, {N, C});
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "group_points_backward", {
    group_points_stacked_backward_cuda(
        grad.const_data_ptr<scalar_t>(),
        stacked_of(counts, indices, group_counts, N, C),
        out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("gather_points", TORCH_BOX(&gather_points));
  m.impl("gather_points_backward", TORCH_BOX(&gather_points_backward));
  m.impl("group_points_stacked", TORCH_BOX(&group_points_stacked));
  m.impl("group_points_stacked_backward",
         TORCH_BOX(&group_points_stacked_backward));
}

}  // namespace mmturbox
