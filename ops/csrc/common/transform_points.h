// One point of a sweep into the common frame; shared by CPU and CUDA.
#pragma once

#include "host_device.h"

namespace mmturbox {

// x * a + y * b + z * c from left to right, without fused multiply-add.
MMTURBOX_HD double dot(double x, double y, double z, const double* abc) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(__dadd_rn(__dmul_rn(x, abc[0]), __dmul_rn(y, abc[1])),
                   __dmul_rn(z, abc[2]));
#else
  return x * abc[0] + y * abc[1] + z * abc[2];
#endif
}

// Rows of a 3x4 matrix. Products and sums are taken in double and rounded to
// T before and after the translation, as numpy does for a float32 cloud and
// a float64 matrix.
template <typename T>
MMTURBOX_HD void move_point(const T* point, const double* matrix, T* moved) {
  const double x = point[0], y = point[1], z = point[2];
  for (int row = 0; row < 3; ++row) {
    const double* m = matrix + row * 4;
    const T turned = static_cast<T>(dot(x, y, z, m));
    moved[row] = static_cast<T>(static_cast<double>(turned) + m[3]);
  }
}

MMTURBOX_HD bool is_identity(const double* matrix) {
  for (int i = 0; i < 12; ++i)
    if (matrix[i] != (i % 5 == 0 ? 1. : 0.)) return false;
  return true;
}

// Within a square around the sensor; a NaN is not.
template <typename T>
MMTURBOX_HD bool is_close(const T* point, T radius) {
  return std::fabs(point[0]) < radius && std::fabs(point[1]) < radius;
}

// Strictly inside; `range` is x0, y0, z0, x1, y1, z1. A NaN is not.
template <typename T>
MMTURBOX_HD bool in_range(const T* point, const T* range) {
  return point[0] > range[0] && point[1] > range[1] && point[2] > range[2] &&
         point[0] < range[3] && point[1] < range[4] && point[2] < range[5];
}

}  // namespace mmturbox
