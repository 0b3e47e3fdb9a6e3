// How the overlap of two rotated rectangles changes with them, and the order
// of the corners of an overlap; shared by the CPU and CUDA kernels.
#pragma once

#include "box_iou_rotated.h"

namespace mmturbox {

// A stretch of an edge, measured from the middle of the edge: its length and
// its first moment.
template <typename T>
struct Span {
  T length, moment;
};

// Keep of [low, high] the t for which |start + t * step| <= half. An edge
// that runs on the border, but for rounding, counts half: in the middle of
// the two slopes that the overlap has there.
template <typename T>
MMTURBOX_HD T clip_span(T start, T step, T half, T* low, T* high) {
  if (std::fabs(step) < T(1e-12)) {
    const T gap = std::fabs(start) - half;
    if (std::fabs(gap) <= half * T(1e-12)) return T(0.5);
    return gap < 0 ? T(1) : T(0);
  }
  const T t1 = (-half - start) / step, t2 = (half - start) / step;
  const T from = t1 < t2 ? t1 : t2, to = t1 < t2 ? t2 : t1;
  if (from > *low) *low = from;
  if (to < *high) *high = to;
  return 1;
}

// The part of the edge (x, y) + t * (dx, dy), |t| <= reach, inside of a box.
template <typename T>
MMTURBOX_HD Span<T> edge_inside(const RotatedBox<T>& box, T x, T y, T dx,
                                T dy, T reach) {
  T low = -reach, high = reach;
  const T weight = clip_span(x, dx, box.half_w, &low, &high) *
                   clip_span(y, dy, box.half_h, &low, &high);
  if (!(weight > 0 && high > low)) return {0, 0};
  return {weight * (high - low), weight * (high - low) * (high + low) / 2};
}

// Slope of the overlap by x, y, width, height and angle of `b`. Moving a
// border outwards adds its length inside of `a`; turning it, its moment.
template <typename T>
MMTURBOX_HD void overlap_slope(const RotatedBox<T>& a, const RotatedBox<T>& b,
                               T* slope) {
  const T dx = b.x - a.x, dy = b.y - a.y;
  const T c = a.cos * b.cos + a.sin * b.sin;
  const T s = a.cos * b.sin - a.sin * b.cos;
  const T x = dx * a.cos + dy * a.sin, y = dy * a.cos - dx * a.sin;
  const T wx = b.half_w * c, wy = b.half_w * s;
  const T hx = -b.half_h * s, hy = b.half_h * c;
  const Span<T> right = edge_inside(a, x + wx, y + wy, -s, c, b.half_h);
  const Span<T> left = edge_inside(a, x - wx, y - wy, -s, c, b.half_h);
  const Span<T> top = edge_inside(a, x + hx, y + hy, c, s, b.half_w);
  const Span<T> bottom = edge_inside(a, x - hx, y - hy, c, s, b.half_w);
  const T along = right.length - left.length;
  const T across = top.length - bottom.length;
  slope[0] = along * b.cos - across * b.sin;
  slope[1] = along * b.sin + across * b.cos;
  slope[2] = (right.length + left.length) / 2;
  slope[3] = (top.length + bottom.length) / 2;
  slope[4] = top.moment - bottom.moment - right.moment + left.moment;
}

// The gradients of one pair; zero where the boxes do not overlap.
template <typename T>
MMTURBOX_HD void overlap_gradients(const T* box1, const T* box2, T grad,
                                   T* grad1, T* grad2) {
  const auto a = load_rotated_box<double>(box1);
  const auto b = load_rotated_box<double>(box2);
  double slope1[5] = {0, 0, 0, 0, 0}, slope2[5] = {0, 0, 0, 0, 0};
  if (rotated_overlap(a, b) > 0) {
    overlap_slope(b, a, slope1);
    overlap_slope(a, b, slope2);
  }
  for (int k = 0; k < 5; ++k) {
    grad1[k] = static_cast<T>(grad * slope1[k]);
    grad2[k] = static_cast<T>(grad * slope2[k]);
  }
}

constexpr int kVertices = 24;  // 4 + 4 corners, 16 crossings of edges
constexpr int kCorners = 8;    // of an overlap, at most

// Where a vertex stands on the way round the origin, in [0, 4): exact
// arithmetic, unlike an arc tangent.
template <typename T>
MMTURBOX_HD double turn_of(const T* vertex) {
  const double x = vertex[0], y = vertex[1];
  const double r = std::fabs(x) + std::fabs(y);
  if (!(r > 0)) return 0;
  return y >= 0 ? 1 - x / r : 3 + x / r;
}

template <typename T>
MMTURBOX_HD bool same_vertex(const T* a, const T* b, double tolerance) {
  return std::fabs(double(a[0]) - b[0]) + std::fabs(double(a[1]) - b[1]) <=
         tolerance;
}

// order: the valid ones of 24 vertices around the origin, each place once,
// the first again at the end, and then a vertex that is not valid; only that
// one if fewer than three places are left.
template <typename T>
MMTURBOX_HD void order_vertices(const T* vertices, const bool* mask,
                                int32_t* order) {
  int sorted[kVertices] = {}, count = 0, none = kVertices - 1;
  double turns[kVertices] = {}, size = 0;
  for (int i = kVertices - 1; i >= kCorners; --i)
    if (!mask[i]) none = i;
  for (int i = 0; i < kVertices; ++i) {
    if (!mask[i]) continue;
    const double turn = turn_of(vertices + 2 * i);
    const double reach = std::fabs(double(vertices[2 * i])) +
                         std::fabs(double(vertices[2 * i + 1]));
    if (reach > size) size = reach;
    int place = count++;
    for (; place > 0 && turns[place - 1] > turn; --place) {
      turns[place] = turns[place - 1];
      sorted[place] = sorted[place - 1];
    }
    turns[place] = turn;
    sorted[place] = i;
  }
  int kept = 0;
  for (int k = 0; k < count && kept < kCorners; ++k) {
    const T* vertex = vertices + 2 * sorted[k];
    if (kept > 0 &&
        (same_vertex(vertex, vertices + 2 * order[kept - 1], 1e-6 * size) ||
         same_vertex(vertex, vertices + 2 * order[0], 1e-6 * size)))
      continue;
    order[kept++] = sorted[k];
  }
  if (kept < 3) kept = 0;
  const int32_t first = kept > 0 ? order[0] : none;
  for (int k = kept; k <= kCorners; ++k) order[k] = k == kept ? first : none;
}

}  // namespace mmturbox
