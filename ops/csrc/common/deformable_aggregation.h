// Shapes and weights of deformable aggregation; shared by CPU and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

// B samples, N anchors of K points in M cameras, L levels, G groups of
// channels; T cells of `width` channels a sample.
struct AggregationShape {
  int64_t batch, anchors, points, cameras, levels, groups, cells, width;

  MMTURBOX_HD int64_t channels() const { return width / groups; }
  MMTURBOX_HD int64_t location_at(int64_t b, int64_t n, int64_t k,
                                  int64_t m) const {
    return (((b * anchors + n) * points + k) * cameras + m) * 2;
  }
  MMTURBOX_HD int64_t weight_at(int64_t b, int64_t n, int64_t k, int64_t m,
                                int64_t level) const {
    return (location_at(b, n, k, m) / 2 * levels + level) * groups;
  }
  // `row` is b * anchors + n.
  MMTURBOX_HD int64_t anchor_logit_at(int64_t row, int64_t level,
                                      int64_t k) const {
    return ((row * levels + level) * points + k) * groups;
  }
  MMTURBOX_HD int64_t camera_logit_at(int64_t b, int64_t m, int64_t level,
                                      int64_t k) const {
    return (((b * cameras + m) * levels + level) * points + k) * groups;
  }
};

// Strictly inside of the image. False for NaN.
template <typename T>
MMTURBOX_HD bool point_visible(T x, T y) {
  return x > 0 && x < 1 && y > 0 && y < 1;
}

// Logits (B, N, L, K, G) and (B, M, L, K, G), the logarithm (B, N, G) of the
// sum of the exponentials of their sums, and factors (B, N, K, M) or null.
template <typename T>
struct SplitLogits {
  const T *anchors, *cameras, *norm, *scale;
};

template <typename T>
MMTURBOX_HD T split_weight(const SplitLogits<T>& split,
                           const AggregationShape& s, int64_t b, int64_t n,
                           int64_t k, int64_t m, int64_t level, int64_t g) {
  const int64_t row = b * s.anchors + n;
  const T logit = split.anchors[s.anchor_logit_at(row, level, k) + g] +
                  split.cameras[s.camera_logit_at(b, m, level, k) + g] -
                  split.norm[row * s.groups + g];
  const T weight = std::exp(logit);
  return split.scale ? weight * split.scale[s.location_at(b, n, k, m) / 2]
                     : weight;
}

}  // namespace mmturbox
