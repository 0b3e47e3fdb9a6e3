// Bindings of three_interpolate.cu.
#include "three_interpolate.h"

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

Tensor three_interpolate(const Tensor& features_in, const Tensor& indices_in,
                         const Tensor& weight_in) {
  const Launch launch(features_in);
  const Tensor features = compute_tensor(features_in);
  const Tensor weight = compute_tensor(weight_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = features.size(0), C = features.size(1);
  const int64_t N = indices.size(1);
  Tensor out = torch::stable::new_empty(features, {B, C, N});
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "three_interpolate", {
    three_interpolate_cuda(
        features.const_data_ptr<scalar_t>(),
        indices.const_data_ptr<int32_t>(), weight.const_data_ptr<scalar_t>(),
        B * C, C, features.size(2), N, out.mutable_data_ptr<scalar_t>(),
        launch);
  });
  return in_type(out, features_in.scalar_type());
}

Tensor three_interpolate_backward(const Tensor& grad_in,
                                  const Tensor& indices_in,
                                  const Tensor& weight_in, int64_t M) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor weight = compute_tensor(weight_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = grad.size(0), C = grad.size(1);
  Tensor out = torch::stable::new_zeros(grad, {B, C, M});
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "three_interpolate_backward", {
    three_interpolate_backward_cuda(
        grad.const_data_ptr<scalar_t>(), indices.const_data_ptr<int32_t>(),
        weight.const_data_ptr<scalar_t>(), B * C, C, M, grad.size(2),
        out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("three_interpolate", TORCH_BOX(&three_interpolate));
  m.impl("three_interpolate_backward",
         TORCH_BOX(&three_interpolate_backward));
}

}  // namespace mmturbox
