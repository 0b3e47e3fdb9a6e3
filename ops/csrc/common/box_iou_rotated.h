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
MMTURBOX_HD T magnitude(const T& value) {
  return value < 0 ? -value : value;
}

template <typename T>
MMTURBOX_HD T clamp_abs(const T& value, const T& limit) {
  const T low = value < -limit ? -limit : value;
  return value > limit ? limit : low;
}

// Mean of clamp_abs(x, half) while x runs evenly from `a` to `b`. Here and
// below T may be a vector type of the compiler: there are selections in place
// of branches, and what divides by zero is not selected.
template <typename T>
MMTURBOX_HD T clamped_mean(const T& a, const T& b, const T& half) {
  const T low = a < b ? a : b;
  const T high = a < b ? b : a;
  const T length = high - low;
  const T from = clamp_abs(low, half);
  const T to = clamp_abs(high, half);
  const T below = (high < -half ? high : -half) - low;
  const T above = high - (low > half ? low : half);
  const T zero{};
  const T outside = (above > 0 ? above : zero) - (below > 0 ? below : zero);
  const T mean = (half * outside + (to - from) * (from + to) / 2) / length;
  return length > 0 ? mean : from;
}

// Integral of clamp_abs(x) over clamp_abs(y) along the edge 1 -> 2.
template <typename T>
MMTURBOX_HD T edge_area(const T& x1, const T& y1, const T& x2, const T& y2,
                        const T& half_w, const T& half_h) {
  const T from = clamp_abs(y1, half_h);
  const T to = clamp_abs(y2, half_h);
  const T slope = (x2 - x1) / (y2 - y1);
  const T area = (to - from) * clamped_mean(x1 + (from - y1) * slope,
                                            x2 + (to - y2) * slope, half_w);
  const T zero{};
  return from == to ? zero : area;
}

// Area that two rectangles share. Zero where a size is not positive or any
// value is NaN: an unordered comparison is false.
template <typename T>
MMTURBOX_HD T rotated_overlap(const RotatedBox<T>& a, const RotatedBox<T>& b) {
  const T dx = b.x - a.x, dy = b.y - a.y;
  const T c = a.cos * b.cos + a.sin * b.sin;
  const T s = a.cos * b.sin - a.sin * b.cos;
  const T abs_c = magnitude(c), abs_s = magnitude(s);
  // The centre of b seen from a, and of a seen from b (sign aside).
  const T x = dx * a.cos + dy * a.sin, y = dy * a.cos - dx * a.sin;
  const T bx = dx * b.cos + dy * b.sin, by = dy * b.cos - dx * b.sin;
  // Separating axes: the answer is exactly zero for boxes that are apart.
  const auto meet =
      (a.half_w > 0) & (a.half_h > 0) & (b.half_w > 0) & (b.half_h > 0) &
      (magnitude(bx) < b.half_w + a.half_w * abs_c + a.half_h * abs_s) &
      (magnitude(by) < b.half_h + a.half_w * abs_s + a.half_h * abs_c) &
      (magnitude(x) < a.half_w + b.half_w * abs_c + b.half_h * abs_s) &
      (magnitude(y) < a.half_h + b.half_w * abs_s + b.half_h * abs_c);
  // From the centre of b: half its width (u) and half its height (v).
  const T ux = b.half_w * c, uy = b.half_w * s;
  const T vx = -b.half_h * s, vy = b.half_h * c;
  const T x1 = x + ux + vx, x2 = x - ux + vx;
  const T x3 = x - ux - vx, x4 = x + ux - vx;
  const T y1 = y + uy + vy, y2 = y - uy + vy;
  const T y3 = y - uy - vy, y4 = y + uy - vy;
  const T area = edge_area(x1, y1, x2, y2, a.half_w, a.half_h) +
                 edge_area(x2, y2, x3, y3, a.half_w, a.half_h) +
                 edge_area(x3, y3, x4, y4, a.half_w, a.half_h) +
                 edge_area(x4, y4, x1, y1, a.half_w, a.half_h);
  const T area_a = 4 * a.half_w * a.half_h, area_b = 4 * b.half_w * b.half_h;
  const T most = area_a < area_b ? area_a : area_b;
  const T zero{};
  const T bounded = area < most ? area : most;
  return meet & (area > 0) ? bounded : zero;
}

// The overlap as `mode` wants it: over the union, over box a, or as it is.
template <typename T>
MMTURBOX_HD T rotated_iou(const RotatedBox<T>& a, const RotatedBox<T>& b,
                          int64_t mode) {
  const T overlap = rotated_overlap(a, b);
  const T area_a = 4 * a.half_w * a.half_h;
  const T area_b = 4 * b.half_w * b.half_h;
  if (mode == kArea) return overlap;
  const T iou = overlap / (mode == kIof ? area_a : area_a + area_b - overlap);
  return overlap > 0 ? iou : overlap;
}

}  // namespace mmturbox
