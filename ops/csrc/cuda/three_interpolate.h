// Launches of three_interpolate.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// Rows of m features to rows of n; `channels` rows share the indices and
// weights of a sample.
template <typename T>
void three_interpolate_cuda(const T* features, const int32_t* index,
                            const T* weight, int64_t rows, int64_t channels,
                            int64_t m, int64_t n, T* out, Stream stream);

// Adds to `out`.
template <typename T>
void three_interpolate_backward_cuda(const T* grad, const int32_t* index,
                                     const T* weight, int64_t rows,
                                     int64_t channels, int64_t m, int64_t n,
                                     T* out, Stream stream);

}  // namespace mmturbox
