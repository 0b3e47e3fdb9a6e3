// The indices that a thread of a one-dimensional launch works on.
#pragma once

#include "device.h"

namespace mmturbox {

constexpr int kThreads = 256;

#define MMTURBOX_EACH(i, count)                                             \
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x +          \
                   threadIdx.x,                                             \
               i##_step = static_cast<int64_t>(gridDim.x) * blockDim.x;     \
       i < (count); i += i##_step)

// Blocks of kThreads for `count` indices.
inline unsigned blocks_for(int64_t count) {
  return grid_of(ceil_div(count, kThreads));
}

}  // namespace mmturbox
