// A bilinear read with zeros around the map; shared by CPU and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

// Corners are numbered upper left, upper right, lower left, lower right.
template <typename T>
struct BilinearRead {
  bool inside;  // Some corner is in the map; false where x or y is NaN.
  int64_t x, y;  // The upper left corner, -1 at least.
  T lx, ly;  // How far the point is from it, in [0, 1).

  // The point (px, py) in pixels, of which 0 is the centre of the first.
  MMTURBOX_HD BilinearRead(T px, T py, int64_t height, int64_t width) {
    inside = px > -1 && py > -1 && px < static_cast<T>(width) &&
             py < static_cast<T>(height);
    if (!inside) return;
    x = floor_of(px);
    y = floor_of(py);
    lx = px - static_cast<T>(x);
    ly = py - static_cast<T>(y);
  }

  // Cell of a corner in the flat map, or -1 outside of it.
  MMTURBOX_HD int64_t cell(int corner, int64_t height, int64_t width) const {
    const int64_t cx = x + (corner & 1), cy = y + (corner >> 1);
    return cx >= 0 && cx < width && cy >= 0 && cy < height ? cy * width + cx
                                                           : -1;
  }

  MMTURBOX_HD T weight(int corner) const {
    return (corner & 1 ? lx : 1 - lx) * (corner & 2 ? ly : 1 - ly);
  }

 private:
  MMTURBOX_HD static int64_t floor_of(T value) {
    const int32_t whole = static_cast<int32_t>(value);
    return whole - (value < static_cast<T>(whole) ? 1 : 0);
  }
};

// Slopes of the sum of corner weight times `dot[corner]`, per pixel.
template <typename T>
MMTURBOX_HD T bilinear_slope_x(T ly, const T* dot) {
  return (1 - ly) * (dot[1] - dot[0]) + ly * (dot[3] - dot[2]);
}

template <typename T>
MMTURBOX_HD T bilinear_slope_y(T lx, const T* dot) {
  return (1 - lx) * (dot[2] - dot[0]) + lx * (dot[3] - dot[1]);
}

}  // namespace mmturbox
