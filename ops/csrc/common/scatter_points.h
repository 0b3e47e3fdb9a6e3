// Reductions over the points of a voxel; shared by CPU and CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

enum Reduce : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// Whether `value` takes the place of the maximum so far; a NaN stays.
template <typename T>
MMTURBOX_HD bool takes_over(T value, T best) {
  return value > best || (value != value && best == best);
}

// Whether `value` is the maximum; a NaN is where the maximum is one.
template <typename T>
MMTURBOX_HD bool is_maximum(T value, T best) {
  return value == best || (value != value && best != best);
}

}  // namespace mmturbox
