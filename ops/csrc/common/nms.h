// One axis-aligned box against another; shared by the CPU and CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

template <typename T>
MMTURBOX_HD T larger(T a, T b) {
  return a > b ? a : b;
}

template <typename T>
MMTURBOX_HD T smaller(T a, T b) {
  return a < b ? a : b;
}

// A product that is rounded before it is added to anything: every device then
// decides alike. (A C++ compiler is told so by its flags.)
MMTURBOX_HD float rounded_product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

MMTURBOX_HD double rounded_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// Corners and area of a box whose sides are `x2 - x1 + offset` long.
template <typename T>
struct CornerBox {
  T x1, y1, x2, y2, area;
};

template <typename T>
MMTURBOX_HD CornerBox<T> load_corner_box(const T* box, T offset) {
  return {box[0], box[1], box[2], box[3],
          (box[2] - box[0] + offset) * (box[3] - box[1] + offset)};
}

template <typename T>
MMTURBOX_HD T corner_overlap(const CornerBox<T>& a, const CornerBox<T>& b,
                             T offset) {
  const T w = smaller(a.x2, b.x2) - larger(a.x1, b.x1) + offset;
  const T h = smaller(a.y2, b.y2) - larger(a.y1, b.y1) + offset;
  return rounded_product(larger(w, T(0)), larger(h, T(0)));
}

// NaN where both boxes are empty or a coordinate is NaN: every comparison
// with it is false, so that such a box suppresses nothing.
template <typename T>
MMTURBOX_HD T corner_iou(const CornerBox<T>& a, const CornerBox<T>& b,
                         T offset) {
  const T overlap = corner_overlap(a, b, offset);
  return overlap / (a.area + b.area - overlap);
}

// Whether a score is taken before another; NaN comes first, as in a sort.
template <typename T>
MMTURBOX_HD bool better_score(T a, T b) {
  return a > b || (a != a && b == b);
}

// What soft suppression multiplies the score of an overlapping box by.
template <typename T>
struct SoftWeight {
  int64_t method;  // 0 naive, 1 linear, 2 gaussian
  T threshold, sigma;

  MMTURBOX_HD T operator()(T iou) const {
    if (method == 2) return std::exp(-(iou * iou) / sigma);
    if (!(iou >= threshold)) return 1;
    return method == 1 ? 1 - iou : T(0);
  }
};

}  // namespace mmturbox
