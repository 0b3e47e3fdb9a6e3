// One point against one 3D box; shared by the CPU and the CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

// A box made ready for many points.
template <typename T>
struct PlacedBox {
  T x, y, z, half_x, half_y, half_z, cos, sin;

  // A NaN anywhere is outside: the tests are written so that an unordered
  // comparison is false.
  MMTURBOX_HD bool holds(const T* point) const {
    if (!(std::fabs(point[2] - z) <= half_z)) return false;
    const T dx = point[0] - x;
    const T dy = point[1] - y;
    const T local_x = dx * cos - dy * sin;
    const T local_y = dx * sin + dy * cos;
    return std::fabs(local_x) < half_x && std::fabs(local_y) < half_y;
  }
};

// `box` is (x, y, z_bottom, dx, dy, dz, yaw).
template <typename T>
MMTURBOX_HD PlacedBox<T> place_box(const T* box) {
  const T half_z = box[5] / 2;
  return {box[0],     box[1], box[2] + half_z,   box[3] / 2,
          box[4] / 2, half_z, std::cos(-box[6]), std::sin(-box[6])};
}

}  // namespace mmturbox
