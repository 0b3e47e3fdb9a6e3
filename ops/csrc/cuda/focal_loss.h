// Launch functions of focal_loss.cu; pointers are on the device. `slope` and
// `sums` (a place for each block) may be null: not wanted, and not summed.
#pragma once

#include "loss_options.h"

namespace mmturbox {

// The target is `labels` of rows or, where that is null, `dense`.
template <typename T, typename C>
void sigmoid_focal_loss_cuda(const T* input, const int64_t* labels,
                             const C* dense, double gamma, double alpha,
                             const LossOptions<C>& options, C* loss, C* slope,
                             C* sums, Stream stream);

// Rows that a block of the softmax takes; it writes one sum.
constexpr int64_t kSoftmaxRows = 8;

template <typename T, typename C>
void softmax_focal_loss_cuda(const T* input, const int64_t* labels,
                             double gamma, double alpha, int64_t rows,
                             const LossOptions<C>& options, C* loss, C* slope,
                             C* sums, Stream stream);

}  // namespace mmturbox
