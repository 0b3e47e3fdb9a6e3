// Which cell of a regular grid holds a point; shared by CPU and CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

template <typename T>
struct VoxelGrid {
  T lower[3];     // x, y, z in metres
  T size[3];      // x, y, z in metres
  int64_t cells[3];  // x, y, z

  // The cell number, z slowest, or -1 for a point that is outside or not
  // finite. Compared before the conversion to integer: that of a NaN or of a
  // huge value is undefined.
  MMTURBOX_HD int64_t cell(const T* point) const {
    int64_t number = 0;
    for (int axis = 2; axis >= 0; --axis) {
      const T c = std::floor((point[axis] - lower[axis]) / size[axis]);
      if (!(c >= 0 && c < static_cast<T>(cells[axis]))) return -1;
      number = number * cells[axis] + static_cast<int64_t>(c);
    }
    return number;
  }

  // Cell number -> z, y, x.
  MMTURBOX_HD void coors(int64_t number, int32_t* zyx) const {
    zyx[2] = static_cast<int32_t>(number % cells[0]);
    zyx[1] = static_cast<int32_t>(number / cells[0] % cells[1]);
    zyx[0] = static_cast<int32_t>(number / cells[0] / cells[1]);
  }
};

}  // namespace mmturbox
