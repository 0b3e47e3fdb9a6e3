// Launch functions of small_matrix.cu; pointers are on the device.
#pragma once

#include "../common/small_matrix.h"

namespace mmturbox {

using Stream = void*;

template <typename T>
void small_inverse_cuda(const T* matrices, InverseKind kind, int64_t count,
                        int64_t rows, int64_t columns, T* out,
                        Stream stream);

template <typename T>
void small_inverse_backward_cuda(const T* grad, const T* inverse,
                                 InverseKind kind, int64_t count,
                                 int64_t rows, int64_t columns, T* out,
                                 Stream stream);

// Samples, points of each, factors, and elements of a factor.
struct AffineShape {
  int64_t samples, points, factors, size;
};

// Points that a block takes.
constexpr int64_t kAffinePoints = 1024;

template <typename T>
void apply_affine_cuda(const T* points, const T* matrices,
                       const AffineShape& shape, T* out, Stream stream);

// Either gradient may be null. `sums` has 12 values for each block of points,
// `grad_matrices` is zero before.
template <typename T>
void apply_affine_backward_cuda(const T* grad, const T* points,
                                const T* matrices, const AffineShape& shape,
                                T* grad_points, T* grad_matrices,
                                double* sums, Stream stream);

}  // namespace mmturbox
