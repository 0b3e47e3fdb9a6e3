// Bindings of focal_loss.cu.
#include "focal_loss.h"

#include "loss_binding.h"

namespace mmturbox {
namespace {

std::tuple<Tensor, Tensor> sigmoid_focal_loss(
    const Tensor& input_in, const Tensor& target_in,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& normalizer, double gamma, double alpha,
    double factor, bool reduce, bool with_slope) {
  const Launch launch(input_in);
  const Tensor input = torch::stable::contiguous(input_in);
  const bool labels = target_in.dim() == 1;
  LossCall call(input, weight, normalizer, factor, reduce, with_slope, false,
                loss_blocks(input.numel()));
  const Tensor target = torch::stable::contiguous(
      labels ? target_in : in_type(target_in, call.loss.scalar_type()));
  dispatch_loss(input.scalar_type(), [&](auto t, auto c) {
    using T = decltype(t);
    using C = decltype(c);
    sigmoid_focal_loss_cuda<T, C>(
        input.const_data_ptr<T>(),
        labels ? target.const_data_ptr<int64_t>() : nullptr,
        labels ? nullptr : target.const_data_ptr<C>(), gamma, alpha,
        call.options<C>(), call.loss.mutable_data_ptr<C>(), call.slopes<C>(),
        call.partial_sums<C>(), launch);
  });
  return {call.loss, call.slope};
}

std::tuple<Tensor, Tensor> softmax_focal_loss(
    const Tensor& input_in, const Tensor& target_in,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& normalizer, double gamma, double alpha,
    double factor, bool reduce, bool with_slope) {
  const Launch launch(input_in);
  const Tensor input = torch::stable::contiguous(input_in);
  const Tensor target = torch::stable::contiguous(target_in);
  const int64_t rows = input.size(0);
  LossCall call(input, weight, normalizer, factor, reduce, with_slope, true,
                (rows + kSoftmaxRows - 1) / kSoftmaxRows);
  dispatch_loss(input.scalar_type(), [&](auto t, auto c) {
    using T = decltype(t);
    using C = decltype(c);
    softmax_focal_loss_cuda<T, C>(
        input.const_data_ptr<T>(), target.const_data_ptr<int64_t>(), gamma,
        alpha, rows, call.options<C>(), call.loss.mutable_data_ptr<C>(),
        call.slopes<C>(), call.partial_sums<C>(), launch);
  });
  return {call.loss, call.slope};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("sigmoid_focal_loss", TORCH_BOX(&sigmoid_focal_loss));
  m.impl("softmax_focal_loss", TORCH_BOX(&softmax_focal_loss));
}

}  // namespace mmturbox
