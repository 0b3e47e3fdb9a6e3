// How the elementwise losses walk over their elements on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "../common/focal_loss.h"
#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {

// Elements that are staged together. Sums are taken per chunk and then over
// the chunks in order, so that they do not depend on the number of threads.
constexpr int64_t kLossChunk = 1024;

// The sum in an order that vector units of every width keep.
template <typename T>
inline double sum_of(const T* values, int64_t count) {
  T lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int64_t k = 0; k < 16; ++k) lanes[k] += values[i + k];
  double sum = 0;
  for (; i < count; ++i) sum += values[i];
  for (T lane : lanes) sum += lane;
  return sum;
}

// What all losses take besides their input.
struct LossOptions {
  std::optional<Tensor> weight;
  double factor;
  bool reduce, with_slope;

  LossOptions(const std::optional<Tensor>& weight_in,
              const std::optional<Tensor>& normalizer, ScalarType type,
              double factor_in, bool reduce, bool with_slope)
      : factor(factor_in), reduce(reduce), with_slope(with_slope) {
    if (weight_in)
      weight = torch::stable::contiguous(in_type(*weight_in, type));
    if (normalizer)
      factor /= *in_type(*normalizer, ScalarType::Double)
                     .const_data_ptr<double>() + kNormalizerEps;
  }

  template <typename T>
  const T* weights() const {
    return weight ? weight->const_data_ptr<T>() : nullptr;
  }
};

// The weights of elements [begin, end), a row of `columns` having one weight
// or one an element, times the factor.
template <typename T>
void stage_weights(const LossOptions& options, int64_t columns,
                   int64_t begin, int64_t end, T* staged) {
  const T factor = static_cast<T>(options.factor);
  const T* weight = options.weights<T>();
  if (weight == nullptr) {
    std::fill(staged, staged + (end - begin), factor);
  } else if (options.weight->dim() == 2) {
    for (int64_t i = begin; i < end; ++i)
      staged[i - begin] = weight[i] * factor;
  } else {
    int64_t row = begin / columns;
    for (int64_t i = begin; i < end; ++row) {
      const int64_t stop = std::min(end, (row + 1) * columns);
      const T value = weight[row] * factor;
      // Rows are short: a call to fill them would take longer.
      for (; i < stop; ++i) staged[i - begin] = value;
    }
  }
}

// (loss, slope) of an elementwise loss over an (N, K) input in its compute
// type; body(begin, end, weights, loss, slope) fills elements [begin, end),
// with a null slope where none is wanted.
template <typename T, typename F>
std::tuple<Tensor, Tensor> elementwise_loss(const Tensor& input,
                                            const LossOptions& options,
                                            F body) {
  const int64_t columns = input.size(1), count = input.numel();
  const int64_t num_chunks = (count + kLossChunk - 1) / kLossChunk;
  Tensor loss = options.reduce ? torch::stable::new_zeros(input, {})
                               : torch::stable::empty_like(input);
  Tensor slope = options.with_slope ? torch::stable::empty_like(input)
                                    : torch::stable::new_empty(input, {0});
  std::vector<double> sums(num_chunks);
  T* losses = loss.mutable_data_ptr<T>();
  T* slopes = slope.mutable_data_ptr<T>();
  torch::stable::parallel_for(0, num_chunks, 8, [&](int64_t b, int64_t e) {
    T weights[kLossChunk], values[kLossChunk];
    for (int64_t chunk = b; chunk < e; ++chunk) {
      const int64_t begin = chunk * kLossChunk;
      const int64_t end = std::min(begin + kLossChunk, count);
      stage_weights(options, columns, begin, end, weights);
      body(begin, end, weights, options.reduce ? values : losses + begin,
           options.with_slope ? slopes + begin : nullptr);
      if (options.reduce) sums[chunk] = sum_of(values, end - begin);
    }
  });
  if (options.reduce) {
    double sum = 0;
    for (double part : sums) sum += part;
    *losses = static_cast<T>(sum);
  }
  return {loss, slope};
}

}  // namespace mmturbox
