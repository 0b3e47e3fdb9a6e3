#include "box_points.h"

#include <limits>
#include <type_traits>

#include "../common/stable.h"

namespace mmturbox {
namespace {

constexpr int64_t kStep = 64;

template <typename T, typename Mask>
inline __attribute__((always_inline)) bool hit_loop(const T* x, const T* y,
                                                    const T* z,
                                                    const PoolBox<T>& box,
                                                    Mask* hits) {
  Mask any = 0;
  for (int64_t i = 0; i < kStep; ++i) {
    hits[i] = box.holds(x[i], y[i], z[i]);
    any |= hits[i];
  }
  return any != 0;
}

// The mask is as wide as the coordinate, so that the loop vectorises.
MMTURBOX_CLONES bool find_hits(const float* x, const float* y, const float* z,
                               const PoolBox<float>& box, int32_t* hits) {
  return hit_loop(x, y, z, box, hits);
}
MMTURBOX_CLONES bool find_hits(const double* x, const double* y,
                               const double* z, const PoolBox<double>& box,
                               int64_t* hits) {
  return hit_loop(x, y, z, box, hits);
}

}  // namespace

template <typename T>
BoxPoints<T>::BoxPoints(const T* points, int64_t n) {
  std::vector<T>* axes[3] = {&x_, &y_, &z_};
  for (int axis = 0; axis < 3; ++axis) {
    axes[axis]->assign((n + kStep - 1) / kStep * kStep,
                       std::numeric_limits<T>::infinity());
    for (int64_t i = 0; i < n; ++i) (*axes[axis])[i] = points[i * 3 + axis];
  }
}

template <typename T>
std::vector<int32_t> BoxPoints<T>::inside(const PoolBox<T>& box,
                                          int64_t limit) const {
  std::conditional_t<sizeof(T) == 4, int32_t, int64_t> hits[kStep];
  std::vector<int32_t> found;
  const int64_t n = static_cast<int64_t>(x_.size());
  for (int64_t at = 0; at < n; at += kStep) {
    if (!find_hits(x_.data() + at, y_.data() + at, z_.data() + at, box, hits))
      continue;
    for (int64_t i = 0; i < kStep; ++i) {
      if (!hits[i]) continue;
      if (static_cast<int64_t>(found.size()) == limit) return found;
      found.push_back(static_cast<int32_t>(at + i));
    }
  }
  return found;
}

template class BoxPoints<float>;
template class BoxPoints<double>;

}  // namespace mmturbox
