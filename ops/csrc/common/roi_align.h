// Geometry of RoI align; shared by the CPU and the CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

// The bins of one region (batch index, x1, y1, x2, y2) along one axis, and
// the samples in a bin.
template <typename T>
struct RoiAxis {
  T start, bin;
  int64_t samples;

  MMTURBOX_HD RoiAxis(T low, T high, T scale, int64_t bins, int64_t ratio,
                      bool aligned) {
    const T offset = aligned ? T(0.5) : T(0);
    start = low * scale - offset;
    T extent = high * scale - offset - start;
    if (!aligned && !(extent >= 1)) extent = 1;
    bin = extent / static_cast<T>(bins);
    // No samples for a region that is empty or not finite.
    samples = ratio;
    if (ratio <= 0) samples = bin > 0 && bin < T(1e9)
                                  ? static_cast<int64_t>(std::ceil(bin)) : 0;
  }

  MMTURBOX_HD T at(int64_t index, int64_t sample) const {
    return start + static_cast<T>(index) * bin +
           (static_cast<T>(sample) + T(0.5)) * bin / static_cast<T>(samples);
  }
};

// Corners and weights of a bilinear read; `inside` is false, and the value
// zero, further than a pixel outside of the map.
template <typename T>
struct Bilinear {
  bool inside;
  int64_t position[4];
  T weight[4];

  MMTURBOX_HD Bilinear(T y, T x, int64_t height, int64_t width) {
    inside = y >= -1 && y <= static_cast<T>(height) && x >= -1 &&
             x <= static_cast<T>(width);
    if (!inside) return;
    int64_t y0, y1, x0, x1;
    const T ly = split(y, height, &y0, &y1), lx = split(x, width, &x0, &x1);
    position[0] = y0 * width + x0;
    position[1] = y0 * width + x1;
    position[2] = y1 * width + x0;
    position[3] = y1 * width + x1;
    weight[0] = (1 - ly) * (1 - lx);
    weight[1] = (1 - ly) * lx;
    weight[2] = ly * (1 - lx);
    weight[3] = ly * lx;
  }

  MMTURBOX_HD T read(const T* map) const {
    if (!inside) return 0;
    return weight[0] * map[position[0]] + weight[1] * map[position[1]] +
           weight[2] * map[position[2]] + weight[3] * map[position[3]];
  }

 private:
  MMTURBOX_HD static T split(T value, int64_t size, int64_t* low,
                             int64_t* high) {
    value = value > 0 ? value : T(0);
    *low = static_cast<int64_t>(value);
    if (*low >= size - 1) {
      *low = *high = size - 1;
      return 0;
    }
    *high = *low + 1;
    return value - static_cast<T>(*low);
  }
};

}  // namespace mmturbox
