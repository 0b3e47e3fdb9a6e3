// Which cell of a regular grid holds a point; shared by CPU and CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

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

  MMTURBOX_HD int64_t total() const { return cells[0] * cells[1] * cells[2]; }

  // Cell number -> z, y, x.
  MMTURBOX_HD void coors(int64_t number, int32_t* zyx) const {
    zyx[2] = static_cast<int32_t>(number % cells[0]);
    zyx[1] = static_cast<int32_t>(number / cells[0] % cells[1]);
    zyx[0] = static_cast<int32_t>(number / cells[0] / cells[1]);
  }
};

// Sizes and bounds are rounded to float32 first, as the callers' are.
template <typename T>
VoxelGrid<T> make_grid(const std::vector<double>& voxel_size,
                       const std::vector<double>& range,
                       const std::vector<int64_t>& cells) {
  VoxelGrid<T> grid;
  for (int axis = 0; axis < 3; ++axis) {
    grid.lower[axis] = static_cast<float>(range[axis]);
    grid.size[axis] = static_cast<float>(voxel_size[axis]);
    grid.cells[axis] = cells[axis];
  }
  return grid;
}

}  // namespace mmturbox
