// Bindings of geometry_kernel_attn.cu.
#include "geometry_kernel_attn.h"

#include <tuple>

#include "attention_binding.h"

namespace mmturbox {
namespace {

void set_kernel(AttentionArgs* args, const std::vector<int64_t>& kernel) {
  for (int k = 0; k < 3; ++k) args->kernel[k] = kernel[k];
}

Tensor geometry_kernel_attn(const Tensor& value, const Tensor& shapes,
                            const Tensor& starts, const Tensor& references,
                            const Tensor& logits,
                            std::optional<Tensor> images,
                            std::optional<Tensor> offsets,
                            std::vector<int64_t> kernel) {
  const Launch launch(value);
  AttentionTensors in(value, shapes, starts, references, logits, images,
                      offsets, true);
  set_kernel(&in.args, kernel);
  Tensor out = in.result();
  dispatch_attention(value.scalar_type(), [&](auto type) {
    geometry_kernel_attn_cuda<decltype(type)>(in.args, launch);
  });
  return out;
}

std::tuple<Tensor, Tensor> geometry_kernel_attn_backward(
    const Tensor& grad_in, const Tensor& value, const Tensor& shapes,
    const Tensor& starts, const Tensor& references, const Tensor& logits,
    std::optional<Tensor> images, std::optional<Tensor> offsets,
    std::vector<int64_t> kernel) {
  const Launch launch(value);
  AttentionTensors in(value, shapes, starts, references, logits, images,
                      offsets, true);
  set_kernel(&in.args, kernel);
  Tensor grad = torch::stable::contiguous(grad_in);
  in.args.out = const_cast<void*>(grad.const_data_ptr());
  Tensor grad_value = in.gradient(in.value, &in.args.grad_value);
  Tensor grad_logits = in.gradient(in.weights, &in.args.grad_weights);
  dispatch_attention(value.scalar_type(), [&](auto type) {
    geometry_kernel_attn_backward_cuda<decltype(type)>(in.args, launch);
  });
  return {in_type(grad_value, value.scalar_type()),
          in_type(grad_logits, logits.scalar_type())};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("geometry_kernel_attn", TORCH_BOX(&geometry_kernel_attn));
  m.impl("geometry_kernel_attn_backward",
         TORCH_BOX(&geometry_kernel_attn_backward));
}

}  // namespace mmturbox
