// Overlap of two rotated rectangles; shared by the CPU and CUDA kernels.
//
// The second rectangle is taken into the frame of the first and its outline
// is walked once. Where the walk leaves the first rectangle it is projected
// onto it; a projected stretch runs along the border and encloses nothing,
// so that the area inside the projected outline is the overlap. It is a sum
// of one closed integral an edge: there is no list of vertices to sort, no
// tolerance, and no branch that coinciding edges could flip, hence the
// overlap is a continuous function of both boxes.
#pragma once

#include "host_device.h"

namespace mmturbox {

// What an overlap is divided by.
enum RotatedMode : int64_t { kIou = 0, kIof = 1, kArea = 2 };

template <typename T>
struct RotatedBox {
  T x, y, half_w, half_h, cos, sin;
};

// `box` is (x, y, width, height, angle), whose angle turns x towards y.
template <typename T, typename Input>
MMTURBOX_HD RotatedBox<T> load_rotated_box(const Input* box) {
  const T angle = static_cast<T>(box[4]);
  return {static_cast<T>(box[0]),     static_cast<T>(box[1]),
          static_cast<T>(box[2]) / 2, static_cast<T>(box[3]) / 2,
          std::cos(angle),            std::sin(angle)};
}

template <typename T>
MMTURBOX_HD T clamp_abs(T value, T limit) {
  return value < -limit ? -limit : (value > limit ? limit : value);
}

// Mean of clamp_abs(x, half) while x runs evenly from `a` to `b`.
template <typename T>
MMTURBOX_HD T clamped_mean(T a, T b, T half) {
  const T low = a < b ? a : b;
  const T high = a < b ? b : a;
  const T length = high - low;
  const T from = clamp_abs(low, half);
  const T to = clamp_abs(high, half);
  if (!(length > 0)) return from;
  const T below = (high < -half ? high : -half) - low;
  const T above = high - (low > half ? low : half);
  const T outside = (above > 0 ? above : T(0)) - (below > 0 ? below : T(0));
  return (half * outside + (to - from) * (from + to) / 2) / length;
}

// Integral of clamp_abs(x) over clamp_abs(y) along the edge 1 -> 2.
template <typename T>
MMTURBOX_HD T edge_area(T x1, T y1, T x2, T y2, T half_w, T half_h) {
  const T from = clamp_abs(y1, half_h);
  const T to = clamp_abs(y2, half_h);
  if (from == to) return 0;
  const T slope = (x2 - x1) / (y2 - y1);
  return (to - from) * clamped_mean(x1 + (from - y1) * slope,
                                    x2 + (to - y2) * slope, half_w);
}

// Area that two rectangles share. Zero where a size is not positive or any
// value is NaN: each test is written so that an unordered comparison leaves.
template <typename T>
MMTURBOX_HD T rotated_overlap(const RotatedBox<T>& a, const RotatedBox<T>& b) {
  if (!(a.half_w > 0 && a.half_h > 0 && b.half_w > 0 && b.half_h > 0))
    return 0;
  const T dx = b.x - a.x, dy = b.y - a.y;
  const T c = a.cos * b.cos + a.sin * b.sin;
  const T s = a.cos * b.sin - a.sin * b.cos;
  const T abs_c = std::fabs(c), abs_s = std::fabs(s);
  // Separating axes: the answer is exactly zero for boxes that are apart.
  const T bx = dx * b.cos + dy * b.sin;
  const T by = dy * b.cos - dx * b.sin;
  if (!(std::fabs(bx) < b.half_w + a.half_w * abs_c + a.half_h * abs_s &&
        std::fabs(by) < b.half_h + a.half_w * abs_s + a.half_h * abs_c))
    return 0;
  const T x = dx * a.cos + dy * a.sin;
  const T y = dy * a.cos - dx * a.sin;
  if (!(std::fabs(x) < a.half_w + b.half_w * abs_c + b.half_h * abs_s &&
        std::fabs(y) < a.half_h + b.half_w * abs_s + b.half_h * abs_c))
    return 0;
  // From the centre of b: half its width (u) and half its height (v).
  const T ux = b.half_w * c, uy = b.half_w * s;
  const T vx = -b.half_h * s, vy = b.half_h * c;
  const T xs[4] = {x + ux + vx, x - ux + vx, x - ux - vx, x + ux - vx};
  const T ys[4] = {y + uy + vy, y - uy + vy, y - uy - vy, y + uy - vy};
  T area = 0;
  for (int i = 0; i < 4; ++i) {
    const int j = (i + 1) % 4;
    area += edge_area(xs[i], ys[i], xs[j], ys[j], a.half_w, a.half_h);
  }
  const T area_a = 4 * a.half_w * a.half_h, area_b = 4 * b.half_w * b.half_h;
  const T most = area_a < area_b ? area_a : area_b;
  return area > 0 ? (area < most ? area : most) : T(0);
}

// The overlap as `mode` wants it: over the union, over box a, or as it is.
template <typename T>
MMTURBOX_HD T rotated_iou(const RotatedBox<T>& a, const RotatedBox<T>& b,
                          int64_t mode) {
  const T overlap = rotated_overlap(a, b);
  if (mode == kArea || !(overlap > 0)) return overlap;
  const T area_a = 4 * a.half_w * a.half_h;
  if (mode == kIof) return overlap / area_a;
  return overlap / (area_a + 4 * b.half_w * b.half_h - overlap);
}

}  // namespace mmturbox
