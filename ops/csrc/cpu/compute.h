// Half precision on the CPU: read it as float32, round the result once.
#pragma once

#include "../common/stable.h"

namespace mmturbox {

// A contiguous float32 or float64 tensor with the values of `input`.
inline Tensor compute_tensor(const Tensor& input) {
  const ScalarType type = input.scalar_type();
  if (type == ScalarType::Half || type == ScalarType::BFloat16)
    return torch::stable::contiguous(
        torch::stable::to(input, ScalarType::Float));
  return torch::stable::contiguous(input);
}

// `tensor` in the type `like`.
inline Tensor in_type(const Tensor& tensor, ScalarType like) {
  return tensor.scalar_type() == like ? tensor
                                      : torch::stable::to(tensor, like);
}

}  // namespace mmturbox
