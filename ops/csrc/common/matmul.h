// Products of matrices by PyTorch's own library, for bindings.
#pragma once

#include <array>

#include "stable.h"

namespace mmturbox {

// out = a @ b, for matrices, or with `batched` for batches of them. The form
// with an output is not changed by autocast.
inline void multiply(const Tensor& a, const Tensor& b, Tensor out,
                     bool batched = false) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack{from(a), from(b), from(out)};
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher(batched ? "aten::bmm" : "aten::mm", "out",
                            stack.data(), TORCH_ABI_VERSION));
  torch::stable::detail::to<Tensor>(stack[0]);
}

// `tensor` without its history. A kernel runs below autograd, the threads that
// it starts do not: what they multiply must not ask for a gradient.
inline Tensor detached(const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(
      "aten::detach", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

}  // namespace mmturbox
