// Cells of a kernel around a projected point; shared by CPU and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

// Height and width of the kernel, and cells from one of its cells to the
// next. Cells are counted with x outermost.
struct KernelShape {
  int64_t height, width, dilation;

  MMTURBOX_HD int64_t x(int64_t cell) const {
    return (cell / height - width / 2) * dilation;
  }
  MMTURBOX_HD int64_t y(int64_t cell) const {
    return (cell % height - height / 2) * dilation;
  }
};

// Half to even, then into [0, size); NaN is 0.
template <typename T>
MMTURBOX_HD int64_t nearest_cell(T at, int64_t size) {
  at = std::nearbyint(at);
  const T last = static_cast<T>(size - 1);
  return at > 0 ? static_cast<int64_t>(at < last ? at : last) : 0;
}

// Cell of the kernel's cell `k` around (x, y), which are shares of the map.
template <typename T>
MMTURBOX_HD int64_t kernel_cell(T x, T y, int64_t k, const KernelShape& s,
                                int64_t height, int64_t width) {
  const T at_x = x * static_cast<T>(width) + static_cast<T>(s.x(k));
  const T at_y = y * static_cast<T>(height) + static_cast<T>(s.y(k));
  return nearest_cell(at_y, height) * width + nearest_cell(at_x, width);
}

}  // namespace mmturbox
