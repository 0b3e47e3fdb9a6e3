// What mmcv's CPU kernels do for suppression and rotated overlap, in our own
// words: sequential, scalar, each kept box against all that follow; an
// intersection is its edge crossings and enclosed corners, ordered by a hull.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace {

struct Point {
  float x, y;
};

Point minus(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
float cross(Point a, Point b) { return a.x * b.y - a.y * b.x; }
float dot(Point a, Point b) { return a.x * b.x + a.y * b.y; }

void corners(const float* box, Point* out) {
  const double angle = box[4];
  const float c = static_cast<float>(std::cos(angle)) * 0.5f;
  const float s = static_cast<float>(std::sin(angle)) * 0.5f;
  out[0] = {box[0] - s * box[3] - c * box[2],
            box[1] + c * box[3] - s * box[2]};
  out[1] = {box[0] + s * box[3] - c * box[2],
            box[1] - c * box[3] - s * box[2]};
  out[2] = {2 * box[0] - out[0].x, 2 * box[1] - out[0].y};
  out[3] = {2 * box[0] - out[1].x, 2 * box[1] - out[1].y};
}

int enclosed(const Point* inner, const Point* outer, Point* out) {
  int count = 0;
  const Point ab = minus(outer[1], outer[0]), ad = minus(outer[3], outer[0]);
  for (int i = 0; i < 4; ++i) {
    const Point ap = minus(inner[i], outer[0]);
    const float u = dot(ap, ab), v = dot(ap, ad);
    if (u >= 0 && v >= 0 && u <= dot(ab, ab) && v <= dot(ad, ad))
      out[count++] = inner[i];
  }
  return count;
}

int crossings(const Point* a, const Point* b, Point* out) {
  int count = 0;
  for (int i = 0; i < 4; ++i) {
    const Point ea = minus(a[(i + 1) % 4], a[i]);
    for (int j = 0; j < 4; ++j) {
      const Point eb = minus(b[(j + 1) % 4], b[j]);
      const float det = cross(eb, ea);
      if (std::fabs(det) <= 1e-14f) continue;
      const Point gap = minus(b[j], a[i]);
      const float t = cross(eb, gap) / det, u = cross(ea, gap) / det;
      if (t >= 0 && t <= 1 && u >= 0 && u <= 1)
        out[count++] = {a[i].x + ea.x * t, a[i].y + ea.y * t};
    }
  }
  return count;
}

// Area of the hull of up to 24 points: Graham's scan about the lowest one.
float hull_area(Point* p, int count) {
  int low = 0;
  for (int i = 1; i < count; ++i)
    if (p[i].y < p[low].y || (p[i].y == p[low].y && p[i].x < p[low].x))
      low = i;
  const Point base = p[low];
  for (int i = 0; i < count; ++i) p[i] = minus(p[i], base);
  std::swap(p[0], p[low]);
  std::sort(p + 1, p + count, [](const Point& a, const Point& b) {
    const float turn = cross(a, b);
    if (std::fabs(turn) < 1e-6f) return dot(a, a) < dot(b, b);
    return turn > 0;
  });
  int first = 1;
  while (first < count && dot(p[first], p[first]) <= 1e-8f) ++first;
  if (first >= count) return 0;
  p[1] = p[first];
  int top = 2;
  for (int i = first + 1; i < count; ++i) {
    while (top > 1 &&
           cross(minus(p[i], p[top - 2]), minus(p[top - 1], p[top - 2])) >= 0)
      --top;
    p[top++] = p[i];
  }
  float area = 0;
  for (int i = 1; i + 1 < top; ++i) area += std::fabs(cross(p[i], p[i + 1]));
  return area / 2;
}

float rotated_iou(const float* box1, const float* box2) {
  // About the midpoint of both, for accuracy.
  const float x = (box1[0] + box2[0]) / 2, y = (box1[1] + box2[1]) / 2;
  const float a[5] = {box1[0] - x, box1[1] - y, box1[2], box1[3], box1[4]};
  const float b[5] = {box2[0] - x, box2[1] - y, box2[2], box2[3], box2[4]};
  const float area_a = a[2] * a[3], area_b = b[2] * b[3];
  if (area_a < 1e-14f || area_b < 1e-14f) return 0;
  Point corners_a[4], corners_b[4], points[24];
  corners(a, corners_a);
  corners(b, corners_b);
  int count = crossings(corners_a, corners_b, points);
  count += enclosed(corners_a, corners_b, points + count);
  count += enclosed(corners_b, corners_a, points + count);
  if (count <= 2) return 0;
  const float shared = hull_area(points, count);
  return shared / (area_a + area_b - shared);
}

std::vector<int64_t> by_score(const float* scores, int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [=](int64_t i, int64_t j) {
    return scores[i] > scores[j];
  });
  return order;
}

template <typename Iou>
int64_t greedy(const float* scores, int64_t n, float threshold, Iou iou,
               int64_t* keep) {
  const auto order = by_score(scores, n);
  std::vector<uint8_t> gone(n, 0);
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (gone[i]) continue;
    keep[kept++] = order[i];
    for (int64_t j = i + 1; j < n; ++j)
      if (!gone[j] && iou(order[i], order[j]) > threshold) gone[j] = 1;
  }
  return kept;
}

}  // namespace

extern "C" {

int64_t stock_nms(const float* boxes, const float* scores, int64_t n,
                  float threshold, int64_t* keep) {
  std::vector<float> areas(n);
  for (int64_t i = 0; i < n; ++i)
    areas[i] = (boxes[i * 4 + 2] - boxes[i * 4]) *
               (boxes[i * 4 + 3] - boxes[i * 4 + 1]);
  return greedy(
      scores, n, threshold,
      [&](int64_t i, int64_t j) {
        const float *a = boxes + i * 4, *b = boxes + j * 4;
        const float w = std::max(
            0.f, std::min(a[2], b[2]) - std::max(a[0], b[0]));
        const float h = std::max(
            0.f, std::min(a[3], b[3]) - std::max(a[1], b[1]));
        return w * h / (areas[i] + areas[j] - w * h);
      },
      keep);
}

int64_t stock_nms_rotated(const float* boxes, const float* scores, int64_t n,
                          float threshold, int64_t* keep) {
  return greedy(
      scores, n, threshold,
      [=](int64_t i, int64_t j) {
        return rotated_iou(boxes + i * 5, boxes + j * 5);
      },
      keep);
}

void stock_box_iou_rotated(const float* boxes1, const float* boxes2,
                           int64_t rows, int64_t cols, float* out) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      out[i * cols + j] = rotated_iou(boxes1 + i * 5, boxes2 + j * 5);
}
}
