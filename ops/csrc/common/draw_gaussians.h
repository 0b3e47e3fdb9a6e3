// Radius and cells of one Gaussian; shared by the CPU and the CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mmturbox {

// Larger than any map: keeps the radii of absurd boxes in range.
constexpr float kMaxRadius = 1 << 20;

// Value at an offset of (dx, dy) cells from the peak.
MMTURBOX_HD float gaussian_cell(int64_t dx, int64_t dy, int64_t radius) {
  const double sigma = static_cast<double>(2 * radius + 1) / 6;
  const double squared = static_cast<double>(dx * dx + dy * dy);
  return static_cast<float>(std::exp(-squared / (2 * sigma * sigma)));
}

// Radius at which a box of this size (in cells) that is shifted still
// overlaps by `overlap`. Every operation is rounded by itself and in
// mmdet3d's order, so that radii are equal to the bit.
class GaussianRadius {
 public:
  MMTURBOX_HD GaussianRadius(double overlap, int64_t least)
      : rest_(static_cast<float>(1 - overlap)),
        whole_(static_cast<float>(1 + overlap)),
        shift_(static_cast<float>(-2 * overlap)),
        scale_(static_cast<float>(4 * (4 * overlap))),
        least_(static_cast<float>(least)) {}

  MMTURBOX_HD int64_t of(float width, float length) const {
    const float total = add(width, length);
    const float squared = mul(total, total);
    const float area = divide(mul(mul(length, width), rest_), whole_);
    const float outside =
        add(total, std::sqrt(add(squared, -4 * area))) / 2;
    const float inside = mul(mul(rest_, length), width);
    const float both = add(total, std::sqrt(add(squared, -4 * inside)));
    const float shifted = mul(shift_, total);
    const float root =
        std::sqrt(add(mul(shifted, shifted), mul(scale_, inside)));
    const float one = add(shifted, root) / 2;
    float radius = outside < both ? outside : both;
    radius = radius < one ? radius : one;
    // A NaN takes the least radius.
    radius = radius > least_ ? radius : least_;
    return static_cast<int64_t>(radius < kMaxRadius ? radius : kMaxRadius);
  }

 private:
#ifdef __CUDA_ARCH__
  static MMTURBOX_HD float mul(float a, float b) { return __fmul_rn(a, b); }
  static MMTURBOX_HD float add(float a, float b) { return __fadd_rn(a, b); }
  // PyTorch's CUDA kernels divide by a host scalar in this way.
  static MMTURBOX_HD float divide(float a, float b) {
    return __fmul_rn(a, 1 / b);
  }
#else
  static MMTURBOX_HD float mul(float a, float b) { return a * b; }
  static MMTURBOX_HD float add(float a, float b) { return a + b; }
  static MMTURBOX_HD float divide(float a, float b) { return a / b; }
#endif

  float rest_, whole_, shift_, scale_, least_;
};

}  // namespace mmturbox
