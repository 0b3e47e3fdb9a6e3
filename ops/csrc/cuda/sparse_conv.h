// Launch functions of sparse_conv.cu; pointers are on the device.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// Rows (inputs, channels) and which of them each tap reads.
template <typename T>
struct SparseReads {
  const T* rows;
  int64_t channels;
  const int32_t* table;  // (taps, outputs)
  int64_t taps, outputs;
  const int32_t* chain;  // or nullptr
  int64_t unchained;
};

// out (outputs, width) = bias + sum over taps of read rows @ weight[tap].
// `bias` may be nullptr. `packed`: rows and weight may be read four channels
// at a time.
template <typename T>
void sparse_conv_cuda(const SparseReads<T>& in, const T* weight,
                      const T* bias, int64_t width, bool relu, bool packed,
                      T* out, Stream stream);

// Parts in which the rows are summed; `sums` below has room for them all.
int64_t sparse_grad_parts(int64_t outputs);

// out (taps, channels, width): the gradient of the weight, by way of `sums`
// (parts, taps, channels, width).
template <typename T, typename Sum>
void sparse_weight_grad_cuda(const SparseReads<T>& in, const T* grad,
                             int64_t width, Sum* sums, T* out, Stream stream);

}  // namespace mmturbox
