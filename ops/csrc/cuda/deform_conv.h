// Launch functions of deform_conv.cu; pointers are on the device.
#pragma once

#include <cstdint>

#include "../common/deform_conv.h"

namespace mmturbox {

using Stream = void*;

// Columns (images, C, taps, positions) of the images [first, first + images);
// `mask` may be null.
template <typename T>
void deform_columns_cuda(const T* input, const T* offset, const T* mask,
                         const DeformShape& shape, int64_t first,
                         int64_t images, T* columns, Stream stream);

// From the gradients of such columns. `grad_input` has the type of sums,
// float32 or float64, and is added to; `grad_mask` may be null.
template <typename T, typename Sum>
void deform_gradients_cuda(const T* columns, const T* input, const T* offset,
                           const T* mask, const DeformShape& shape,
                           int64_t first, int64_t images, Sum* grad_input,
                           T* grad_offset, T* grad_mask, Stream stream);

}  // namespace mmturbox
