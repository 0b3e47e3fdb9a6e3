// Squared distances of points; shared by the CPU and the CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

// x * x + y * y + z * z, each operation rounded: fused multiply-adds would
// order points differently than the references do.
template <typename T>
MMTURBOX_HD T squared_length(T x, T y, T z) {
  return x * x + y * y + z * z;
}

#ifdef __CUDA_ARCH__
template <>
MMTURBOX_HD float squared_length(float x, float y, float z) {
  return __fadd_rn(__fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y)),
                   __fmul_rn(z, z));
}
template <>
MMTURBOX_HD double squared_length(double x, double y, double z) {
  return __dadd_rn(__dadd_rn(__dmul_rn(x, x), __dmul_rn(y, y)),
                   __dmul_rn(z, z));
}
#endif

template <typename T>
MMTURBOX_HD T squared_distance(const T* a, const T* b) {
  return squared_length(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

// Distance along one axis from a coordinate to an interval.
template <typename T>
MMTURBOX_HD T outside_of(T value, T low, T high) {
  const T below = low - value, above = value - high;
  const T distance = below > above ? below : above;
  return distance > 0 ? distance : T(0);
}

// Whether a ball query takes a point at the squared distance `d2`.
template <typename T>
MMTURBOX_HD bool in_shell(T d2, T min2, T max2) {
  return (d2 == 0) | ((d2 >= min2) & (d2 < max2));
}

template <typename T>
MMTURBOX_HD bool is_point(const T* p) {
  // Infinity minus infinity, and NaN minus anything, is NaN.
  return p[0] - p[0] == 0 && p[1] - p[1] == 0 && p[2] - p[2] == 0;
}

}  // namespace mmturbox
