// A cloud sorted into small boxes of space, for exact searches.
//
// The squared distance to a box, computed in the same order of operations as
// that to a point, is never above the computed distance to a point of the
// box: rounding keeps order. So a box whose distance excludes it can be left
// out without changing a bit of a result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "../common/point_distance.h"
#include "../common/stable.h"

namespace mmturbox {

constexpr int64_t kPointBucket = 64;

template <typename T>
inline __attribute__((always_inline)) void bounds_loop(
    const T* box, int64_t count, const T* point, T* out) {
  const T *low_x = box, *high_x = box + count, *low_y = box + 2 * count,
          *high_y = box + 3 * count, *low_z = box + 4 * count,
          *high_z = box + 5 * count;
  const T x = point[0], y = point[1], z = point[2];
  for (int64_t b = 0; b < count; ++b)
    out[b] = squared_length(outside_of(x, low_x[b], high_x[b]),
                            outside_of(y, low_y[b], high_y[b]),
                            outside_of(z, low_z[b], high_z[b]));
}

template <typename T>
inline __attribute__((always_inline)) void distance_loop(
    const T* x, const T* y, const T* z, const T* point, T* out) {
  const T px = point[0], py = point[1], pz = point[2];
  for (int64_t i = 0; i < kPointBucket; ++i)
    out[i] = squared_length(x[i] - px, y[i] - py, z[i] - pz);
}

#define MMTURBOX_LOOPS(T)                                                   \
  [[maybe_unused]] MMTURBOX_CLONES static void bounds_of(                   \
      const T* box, int64_t count, const T* point, T* out) {                \
    bounds_loop(box, count, point, out);                                    \
  }                                                                         \
  [[maybe_unused]] MMTURBOX_CLONES static void distances_of(                \
      const T* x, const T* y, const T* z, const T* point, T* out) {         \
    distance_loop(x, y, z, point, out);                                     \
  }
MMTURBOX_LOOPS(float)
MMTURBOX_LOOPS(double)
#undef MMTURBOX_LOOPS

template <typename T>
struct PointBuckets {
  static constexpr int64_t kSize = kPointBucket;

  int64_t count = 0;
  // Coordinates, kSize a bucket; the last bucket is filled up by infinity.
  std::vector<T> x, y, z;
  // Where the points are in the input; ascends in a bucket.
  std::vector<int32_t> index;
  // Six rows of `count`: low and high x, low and high y, low and high z.
  std::vector<T> box;

  // Points that are not finite are left out.
  PointBuckets(const T* points, int64_t n);

  // out[b] = squared distance from `point` to the box of bucket b.
  void bounds(const T* point, T* out) const;
  // out[i] = squared distance to point i of bucket b, kSize of them.
  void distances(int64_t b, const T* point, T* out) const;

 private:
  void split(const T* points, int32_t* begin, int32_t* end);
};

template <typename T>
PointBuckets<T>::PointBuckets(const T* points, int64_t n) {
  index.reserve(n + kSize);
  for (int64_t i = 0; i < n; ++i)
    if (is_point(points + i * 3)) index.push_back(static_cast<int32_t>(i));
  const int64_t num = static_cast<int64_t>(index.size());
  split(points, index.data(), index.data() + num);
  count = (num + kSize - 1) / kSize;
  index.resize(count * kSize, -1);
  std::vector<T>* axes[3] = {&x, &y, &z};
  box.resize(count * 6);
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<T>& values = *axes[axis];
    values.assign(count * kSize, std::numeric_limits<T>::infinity());
    for (int64_t i = 0; i < num; ++i)
      values[i] = points[index[i] * int64_t{3} + axis];
    for (int64_t b = 0; b < count; ++b) {
      const auto ends = std::minmax_element(
          values.begin() + b * kSize,
          values.begin() + std::min(num, (b + 1) * kSize));
      box[axis * 2 * count + b] = *ends.first;
      box[(axis * 2 + 1) * count + b] = *ends.second;
    }
  }
}

// Halve at the longest side, to whole buckets, down to one bucket.
template <typename T>
void PointBuckets<T>::split(const T* points, int32_t* begin, int32_t* end) {
  const int64_t buckets = (end - begin + kSize - 1) / kSize;
  if (buckets <= 1) {
    std::sort(begin, end);
    return;
  }
  T low[3], high[3];
  for (int axis = 0; axis < 3; ++axis) {
    low[axis] = high[axis] = points[*begin * int64_t{3} + axis];
    for (const int32_t* i = begin; i < end; ++i) {
      const T value = points[*i * int64_t{3} + axis];
      low[axis] = std::min(low[axis], value);
      high[axis] = std::max(high[axis], value);
    }
  }
  int axis = 0;
  for (int other = 1; other < 3; ++other)
    if (high[other] - low[other] > high[axis] - low[axis]) axis = other;
  int32_t* middle = begin + buckets / 2 * kSize;
  std::nth_element(begin, middle, end, [&](int32_t a, int32_t b) {
    return points[a * int64_t{3} + axis] < points[b * int64_t{3} + axis];
  });
  split(points, begin, middle);
  split(points, middle, end);
}

template <typename T>
void PointBuckets<T>::bounds(const T* point, T* out) const {
  bounds_of(box.data(), count, point, out);
}

template <typename T>
void PointBuckets<T>::distances(int64_t b, const T* point, T* out) const {
  const int64_t at = b * kSize;
  distances_of(x.data() + at, y.data() + at, z.data() + at, point, out);
}

}  // namespace mmturbox
