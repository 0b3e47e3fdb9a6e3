// Launch function of gaussian_focal_loss.cu; pointers are on the device.
#pragma once

#include "loss_options.h"

namespace mmturbox {

// `slope` and `sums` (a place for each block) may be null: not wanted, and
// not summed.
template <typename T, typename C>
void gaussian_focal_loss_cuda(const T* input, const C* target, double alpha,
                              double gamma, double positive, double negative,
                              const LossOptions<C>& options, C* loss,
                              C* slope, C* sums, Stream stream);

}  // namespace mmturbox
