// Bindings of ms_deform_attn.cu.
#include "ms_deform_attn.h"

#include <tuple>

#include "attention_binding.h"

namespace mmturbox {
namespace {

Tensor ms_deform_attn(const Tensor& value, const Tensor& shapes,
                      const Tensor& starts, const Tensor& locations,
                      const Tensor& weights, std::optional<Tensor> images,
                      std::optional<Tensor> offsets, bool softmax) {
  const Launch launch(value);
  AttentionTensors in(value, shapes, starts, locations, weights, images,
                      offsets, softmax);
  Tensor out = in.result();
  dispatch_attention(value.scalar_type(), [&](auto type) {
    ms_deform_attn_cuda<decltype(type)>(in.args, launch);
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> ms_deform_attn_backward(
    const Tensor& grad_in, const Tensor& value, const Tensor& shapes,
    const Tensor& starts, const Tensor& locations, const Tensor& weights,
    std::optional<Tensor> images, std::optional<Tensor> offsets,
    bool softmax) {
  const Launch launch(value);
  AttentionTensors in(value, shapes, starts, locations, weights, images,
                      offsets, softmax);
  Tensor grad = torch::stable::contiguous(grad_in);
  in.args.out = const_cast<void*>(grad.const_data_ptr());
  Tensor grad_value = in.gradient(in.value, &in.args.grad_value);
  Tensor grad_at = in.gradient(in.locations, &in.args.grad_locations);
  Tensor grad_weights = in.gradient(in.weights, &in.args.grad_weights);
  dispatch_attention(value.scalar_type(), [&](auto type) {
    ms_deform_attn_backward_cuda<decltype(type)>(in.args, launch);
  });
  return {in_type(grad_value, value.scalar_type()),
          in_type(grad_at, locations.scalar_type()),
          in_type(grad_weights, weights.scalar_type())};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("ms_deform_attn", TORCH_BOX(&ms_deform_attn));
  m.impl("ms_deform_attn_backward", TORCH_BOX(&ms_deform_attn_backward));
}

}  // namespace mmturbox
