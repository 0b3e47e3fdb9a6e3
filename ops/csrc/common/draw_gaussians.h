// One cell of one Gaussian; shared by the CPU and the CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

// Value at an offset of (dx, dy) cells from the peak.
MMTURBOX_HD float gaussian_cell(int64_t dx, int64_t dy, int64_t radius) {
  const double sigma = static_cast<double>(2 * radius + 1) / 6;
  const double squared = static_cast<double>(dx * dx + dy * dy);
  return static_cast<float>(std::exp(-squared / (2 * sigma * sigma)));
}

}  // namespace mmturbox
