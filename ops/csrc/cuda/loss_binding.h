// How the bindings of the losses turn their arguments into LossOptions.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <optional>
#include <tuple>

#include "../cpu/compute.h"
#include "binding.h"
#include "loss_options.h"

namespace mmturbox {

// The tensors of one call, and its outputs.
struct LossCall {
  std::optional<Tensor> weight, normalizer;
  Tensor loss, slope, sums;
  double factor;
  int64_t count, columns;
  bool reduce, with_slope;

  // `losses` values of loss (elements, or rows); `blocks` write sums.
  LossCall(const Tensor& input, const std::optional<Tensor>& weight_in,
           const std::optional<Tensor>& normalizer_in, double factor,
           bool reduce, bool with_slope, bool per_row, int64_t blocks)
      : factor(factor), count(input.numel()), columns(input.size(1)),
        reduce(reduce), with_slope(with_slope) {
    const ScalarType type = compute_type(input.scalar_type());
    if (weight_in)
      weight = torch::stable::contiguous(in_type(*weight_in, type));
    if (normalizer_in) normalizer = in_type(*normalizer_in, type);
    // Empty inputs start no kernel: their sum is zero.
    if (reduce)
      loss = torch::stable::new_zeros(input, {}, type);
    else if (per_row)
      loss = torch::stable::new_empty(input, {input.size(0)}, type);
    else
      loss = torch::stable::new_empty(input, {input.size(0), columns}, type);
    slope = with_slope
                ? torch::stable::new_empty(input, {input.size(0), columns},
                                           type)
                : torch::stable::new_empty(input, {0}, type);
    sums = torch::stable::new_empty(input, {reduce ? blocks : 0}, type);
  }

  static ScalarType compute_type(ScalarType type) {
    return type == ScalarType::Double ? type : ScalarType::Float;
  }

  template <typename C>
  LossOptions<C> options() const {
    return {weight ? weight->const_data_ptr<C>() : nullptr,
            weight && weight->dim() == 2,
            normalizer ? normalizer->const_data_ptr<C>() : nullptr,
            static_cast<C>(factor), count, columns};
  }

  template <typename C>
  C* slopes() {
    return with_slope ? slope.mutable_data_ptr<C>() : nullptr;
  }

  template <typename C>
  C* partial_sums() {
    return reduce ? sums.mutable_data_ptr<C>() : nullptr;
  }
};

// body(T(), C()) for the storage type and the type it is computed in.
template <typename Body>
void dispatch_loss(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Float:
      return body(float(), float());
    case ScalarType::Double:
      return body(double(), double());
    case ScalarType::Half:
      return body(torch::headeronly::Half(), float());
    case ScalarType::BFloat16:
      return body(torch::headeronly::BFloat16(), float());
    default:
      STD_TORCH_CHECK(false, "losses take floating point");
  }
}

}  // namespace mmturbox
