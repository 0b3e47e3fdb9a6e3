// The maximum of sparse max pooling; shared by CPU and CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

// A NaN takes the place of any number and stays.
template <typename T>
MMTURBOX_HD bool pool_takes(T value, T most) {
  return value > most || (value != value && most == most);
}

}  // namespace mmturbox
