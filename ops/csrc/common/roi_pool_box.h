// A 3D box and the points in it; shared by the CPU and the CUDA kernels of
// RoI-aware and RoI-point pooling. Which points are inside is as in
// points_in_boxes.h.
#pragma once

#include "host_device.h"

namespace mmturbox {

template <typename T>
struct PoolBox {
  T x, y, z, bottom, half_x, half_y, half_z, cos, sin;

  // `box` is (x, y, z_bottom, dx, dy, dz, yaw).
  MMTURBOX_HD explicit PoolBox(const T* box)
      : x(box[0]),
        y(box[1]),
        z(box[2] + box[5] / 2),
        bottom(box[2]),
        half_x(box[3] / 2),
        half_y(box[4] / 2),
        half_z(box[5] / 2),
        cos(std::cos(-box[6])),
        sin(std::sin(-box[6])) {}

  MMTURBOX_HD T local_x(T px, T py) const {
    return (px - x) * cos - (py - y) * sin;
  }
  MMTURBOX_HD T local_y(T px, T py) const {
    return (px - x) * sin + (py - y) * cos;
  }
  // False for a NaN anywhere.
  MMTURBOX_HD bool holds(T px, T py, T pz) const {
    return (std::fabs(pz - z) <= half_z) &
           (std::fabs(local_x(px, py)) < half_x) &
           (std::fabs(local_y(px, py)) < half_y);
  }

  // Which of `bins` of the length 2 * half; 0 where that is no number.
  MMTURBOX_HD static int64_t bin(T along, T half, int64_t bins) {
    const T at = along / (2 * half / static_cast<T>(bins));
    if (!(at > 0)) return 0;
    return at < static_cast<T>(bins) ? static_cast<int64_t>(at) : bins - 1;
  }
  // The cell of a point that the box holds, z fastest.
  MMTURBOX_HD int64_t cell(T px, T py, T pz, int64_t out_x, int64_t out_y,
                           int64_t out_z) const {
    const int64_t bx = bin(local_x(px, py) + half_x, half_x, out_x);
    const int64_t by = bin(local_y(px, py) + half_y, half_y, out_y);
    return (bx * out_y + by) * out_z + bin(pz - bottom, half_z, out_z);
  }
};

}  // namespace mmturbox
