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

// The two pixels that a coordinate lies between, and the weight of the upper
// one; not `inside` further than a pixel outside of the map.
template <typename T>
struct PixelPair {
  bool inside;
  int64_t low = 0, high = 0;
  T weight = 0;

  MMTURBOX_HD PixelPair(T value, int64_t size)
      : inside(value >= -1 && value <= static_cast<T>(size)) {
    if (!inside) return;
    value = value > 0 ? value : T(0);
    low = static_cast<int64_t>(value);
    if (low >= size - 1) {
      low = high = size - 1;
      return;
    }
    high = low + 1;
    weight = value - static_cast<T>(low);
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
    const PixelPair<T> row(y, height), column(x, width);
    inside = row.inside && column.inside;
    if (!inside) return;
    const int64_t y0 = row.low, y1 = row.high;
    const int64_t x0 = column.low, x1 = column.high;
    const T ly = row.weight, lx = column.weight;
    position[0] = y0 * width + x0;
    position[1] = y0 * width + x1;
    position[2] = y1 * width + x0;
    position[3] = y1 * width + x1;
    weight[0] = (1 - ly) * (1 - lx);
    weight[1] = (1 - ly) * lx;
    weight[2] = ly * (1 - lx);
    weight[3] = ly * lx;
  }

  // The pixels of a map are `stride` values apart.
  MMTURBOX_HD T read(const T* map, int64_t stride = 1) const {
    if (!inside) return 0;
    return weight[0] * map[position[0] * stride] +
           weight[1] * map[position[1] * stride] +
           weight[2] * map[position[2] * stride] +
           weight[3] * map[position[3] * stride];
  }
};

}  // namespace mmturbox
