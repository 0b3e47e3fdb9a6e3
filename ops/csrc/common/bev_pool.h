// The grid cell of one frustum point; shared by the CPU and CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

struct BevGrid {
  double lower[3], size[3];
  int64_t cells[3];
};

// z * Y * X + y * X + x, or -1 outside. Coordinates are cut off towards zero,
// so that a point less than a cell below the lower bound is in cell 0. A NaN
// fails every comparison and is outside.
template <typename T>
MMTURBOX_HD int32_t bev_cell(const T* point, const BevGrid& grid) {
  int64_t at[3];
  for (int k = 0; k < 3; ++k) {
    const T x = (point[k] - static_cast<T>(grid.lower[k])) /
                static_cast<T>(grid.size[k]);
    if (!(x > T(-1) && x < static_cast<T>(grid.cells[k]))) return -1;
    at[k] = static_cast<int64_t>(x);
  }
  return static_cast<int32_t>((at[2] * grid.cells[1] + at[1]) *
                                  grid.cells[0] + at[0]);
}

}  // namespace mmturbox
