// Binding of gaussian_focal_loss.cu.
#include "gaussian_focal_loss.h"

#include "loss_binding.h"

namespace mmturbox {
namespace {

std::tuple<Tensor, Tensor> gaussian_focal_loss(
    const Tensor& input_in, const Tensor& target_in,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& normalizer, double alpha, double gamma,
    double positive, double negative, double factor, bool reduce,
    bool with_slope) {
  const Launch launch(input_in);
  const Tensor input = torch::stable::contiguous(input_in);
  LossCall call(input, weight, normalizer, factor, reduce, with_slope, false,
                loss_blocks(input.numel()));
  const Tensor target = torch::stable::contiguous(
      in_type(target_in, call.loss.scalar_type()));
  dispatch_loss(input.scalar_type(), [&](auto t, auto c) {
    using T = decltype(t);
    using C = decltype(c);
    gaussian_focal_loss_cuda<T, C>(
        input.const_data_ptr<T>(), target.const_data_ptr<C>(), alpha, gamma,
        positive, negative, call.options<C>(),
        call.loss.mutable_data_ptr<C>(), call.slopes<C>(),
        call.partial_sums<C>(), launch);
  });
  return {call.loss, call.slope};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("gaussian_focal_loss", TORCH_BOX(&gaussian_focal_loss));
}

}  // namespace mmturbox
