// The points of a cloud that lie in a box, in the order of the cloud.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "../common/roi_pool_box.h"
#include "../common/stable.h"

namespace mmturbox {

constexpr int64_t kBoxStep = 64;

template <typename T, typename Mask>
inline __attribute__((always_inline)) bool hit_loop(const T* x, const T* y,
                                                    const T* z,
                                                    const PoolBox<T>& box,
                                                    Mask* hits) {
  Mask any = 0;
  for (int64_t i = 0; i < kBoxStep; ++i) {
    hits[i] = box.holds(x[i], y[i], z[i]);
    any |= hits[i];
  }
  return any != 0;
}

// The mask is as wide as the coordinate, so that the loop vectorises.
MMTURBOX_CLONES static bool find_hits(const float* x, const float* y,
                                      const float* z,
                                      const PoolBox<float>& box,
                                      int32_t* hits) {
  return hit_loop(x, y, z, box, hits);
}
MMTURBOX_CLONES static bool find_hits(const double* x, const double* y,
                                      const double* z,
                                      const PoolBox<double>& box,
                                      int64_t* hits) {
  return hit_loop(x, y, z, box, hits);
}

template <typename T>
class BoxPoints {
 public:
  BoxPoints(const T* points, int64_t n);

  // Up to `limit` of them.
  std::vector<int32_t> inside(const PoolBox<T>& box, int64_t limit) const;

 private:
  // Coordinates, filled up to whole steps by infinity.
  std::vector<T> x_, y_, z_;
};

template <typename T>
BoxPoints<T>::BoxPoints(const T* points, int64_t n) {
  std::vector<T>* axes[3] = {&x_, &y_, &z_};
  for (int axis = 0; axis < 3; ++axis) {
    axes[axis]->assign((n + kBoxStep - 1) / kBoxStep * kBoxStep,
                       std::numeric_limits<T>::infinity());
    for (int64_t i = 0; i < n; ++i) (*axes[axis])[i] = points[i * 3 + axis];
  }
}

template <typename T>
std::vector<int32_t> BoxPoints<T>::inside(const PoolBox<T>& box,
                                          int64_t limit) const {
  std::conditional_t<sizeof(T) == 4, int32_t, int64_t> hits[kBoxStep];
  std::vector<int32_t> found;
  const int64_t n = static_cast<int64_t>(x_.size());
  for (int64_t at = 0; at < n; at += kBoxStep) {
    if (!find_hits(x_.data() + at, y_.data() + at, z_.data() + at, box, hits))
      continue;
    for (int64_t i = 0; i < kBoxStep; ++i) {
      if (!hits[i]) continue;
      if (static_cast<int64_t>(found.size()) == limit) return found;
      found.push_back(static_cast<int32_t>(at + i));
    }
  }
  return found;
}

}  // namespace mmturbox
