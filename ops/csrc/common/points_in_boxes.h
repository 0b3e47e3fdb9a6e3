// One point against one 3D box; shared by the CPU and the CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

// `box` is (x, y, z_bottom, dx, dy, dz, yaw). A NaN anywhere is outside: the
// tests are written so that an unordered comparison is false.
template <typename T>
MMTURBOX_HD bool point_in_box(const T* point, const T* box) {
  const T half_z = box[5] / 2;
  if (!(std::fabs(point[2] - (box[2] + half_z)) <= half_z)) return false;
  const T dx = point[0] - box[0];
  const T dy = point[1] - box[1];
  const T c = std::cos(-box[6]);
  const T s = std::sin(-box[6]);
  const T local_x = dx * c - dy * s;
  const T local_y = dx * s + dy * c;
  return std::fabs(local_x) < box[3] / 2 && std::fabs(local_y) < box[4] / 2;
}

}  // namespace mmturbox
