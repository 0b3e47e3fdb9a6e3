// A cloud sorted into small boxes of space, for exact searches.
//
// The squared distance to a box, computed in the same order of operations as
// that to a point, is never above the computed distance to a point of the
// box: rounding keeps order. So a box whose distance excludes it can be left
// out without changing a bit of a result.
#pragma once

#include <cstdint>
#include <vector>

namespace mmturbox {

template <typename T>
struct PointBuckets {
  static constexpr int64_t kSize = 64;

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

}  // namespace mmturbox
