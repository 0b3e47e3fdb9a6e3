// Support and weight of a Gaussian on a voxel grid; shared by the CPU and the
// CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

struct SplatGrid {
  double lower[3], size;
  int64_t cells[3];

  MMTURBOX_HD int64_t voxels() const {
    return cells[0] * cells[1] * cells[2];
  }
};

// Voxels that a Gaussian touches along each axis, both ends included.
struct SplatBox {
  int32_t low[3], high[3];
};

// Voxels at most `radius` from that of the mean, within the grid. Empty (the
// first axis ends before it starts) for a negative radius and for a mean that
// is not finite.
template <typename T>
MMTURBOX_HD SplatBox splat_box(const T* mean, int64_t radius,
                               const SplatGrid& grid) {
  SplatBox box;
  bool valid = radius >= 0;
  for (int k = 0; k < 3; ++k) {
    const T at = (mean[k] - static_cast<T>(grid.lower[k])) /
                 static_cast<T>(grid.size);
    // No voxel is further out than this; also false for not a number.
    const bool finite = at > T(-1e9) && at < T(1e9);
    valid = valid && finite;
    const int64_t voxel = finite ? static_cast<int64_t>(at) : 0;
    const int64_t low = voxel - radius, high = voxel + radius;
    box.low[k] = static_cast<int32_t>(low > 0 ? low : 0);
    box.high[k] = static_cast<int32_t>(
        high < grid.cells[k] ? (high > -1 ? high : -1) : grid.cells[k] - 1);
    valid = valid && low < grid.cells[k];
  }
  if (!valid || box.high[1] < 0 || box.high[2] < 0) {
    box.low[0] = 0;
    box.high[0] = -1;
  }
  return box;
}

template <typename T>
MMTURBOX_HD T voxel_centre(int64_t index, int axis, const SplatGrid& grid) {
  return static_cast<T>(grid.lower[axis]) +
         (static_cast<T>(index) + T(0.5)) * static_cast<T>(grid.size);
}

// Minus the exponent; `p` is xx, yy, zz, xy, yz, xz of the precision. A
// matrix that is not positive cannot make it overflow.
template <typename T>
MMTURBOX_HD T splat_distance(const T* p, T dx, T dy, T dz) {
  const T half = T(0.5) * (p[0] * dx * dx + p[1] * dy * dy + p[2] * dz * dz);
  const T a = half + p[3] * dx * dy + p[4] * dy * dz + p[5] * dx * dz;
  return a > T(-80) ? a : T(-80);
}

// Guards the gradient of a product by a factor that is zero.
template <typename T>
MMTURBOX_HD T splat_epsilon() {
  return T(1e-9);
}

}  // namespace mmturbox
