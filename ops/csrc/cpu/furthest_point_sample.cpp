// CPU kernels of mmturbox::furthest_point_sample{,_with_dist}.
#include <algorithm>
#include <limits>
#include <vector>

#include "../common/point_distance.h"
#include "../common/stable.h"
#include "compute.h"
#include "point_buckets.h"

namespace mmturbox {
namespace {

// Lower `distance` to that from `point`, for n points (a multiple of 16);
// return the largest that remains.
template <typename T>
inline __attribute__((always_inline)) T lower_loop(const T* x, const T* y,
                                                   const T* z, int64_t n,
                                                   const T* point,
                                                   T* distance) {
  // A row of maxima, since one running maximum does not vectorise.
  constexpr int kLanes = 16;
  T best[kLanes];
  for (int k = 0; k < kLanes; ++k) best[k] = -1;
  const T px = point[0], py = point[1], pz = point[2];
  for (int64_t i = 0; i < n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const T d =
          squared_length(x[i + k] - px, y[i + k] - py, z[i + k] - pz);
      const T least = d < distance[i + k] ? d : distance[i + k];
      distance[i + k] = least;
      best[k] = least > best[k] ? least : best[k];
    }
  return *std::max_element(best, best + kLanes);
}

// flag[b] = whether bucket b may hold a point nearer to the pick than to all
// before.
template <typename T>
inline __attribute__((always_inline)) void flag_loop(const T* bound,
                                                     const T* top,
                                                     int64_t count,
                                                     uint8_t* flag) {
  for (int64_t b = 0; b < count; ++b) flag[b] = bound[b] < top[b];
}

template <typename T>
inline __attribute__((always_inline)) void row_loop(const T* row, int64_t n,
                                                    T* distance) {
  for (int64_t i = 0; i < n; ++i)
    distance[i] = row[i] < distance[i] ? row[i] : distance[i];
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES T lower(const T* x, const T* y, const T* z, int64_t n,    \
                          const T* point, T* distance) {                    \
    return lower_loop(x, y, z, n, point, distance);                         \
  }                                                                         \
  MMTURBOX_CLONES void flag_near(const T* bound, const T* top,              \
                                 int64_t count, uint8_t* flag) {            \
    flag_loop(bound, top, count, flag);                                     \
  }                                                                         \
  MMTURBOX_CLONES void lower_by_row(const T* row, int64_t n, T* distance) { \
    row_loop(row, n, distance);                                             \
  }
MMTURBOX_LOOPS(float)
MMTURBOX_LOOPS(double)
#undef MMTURBOX_LOOPS

// One cloud. A bucket keeps its largest distance; a pick that is further
// from the bucket's box than that changes nothing in it.
template <typename T>
void sample_cloud(const T* points, int64_t n, int64_t picks, int32_t* out) {
  constexpr int64_t kSize = PointBuckets<T>::kSize;
  const PointBuckets<T> buckets(points, n);
  const int64_t count = buckets.count, padded = (count + 7) / 8 * 8;
  std::fill(out, out + picks, 0);
  if (count == 0) return;
  std::vector<T> distance(count * kSize, std::numeric_limits<T>::infinity());
  for (int64_t i = 0; i < count * kSize; ++i)
    if (buckets.index[i] < 0) distance[i] = -1;
  std::vector<T> top(count, std::numeric_limits<T>::infinity());
  std::vector<int32_t> first(count);  // the lowest point at that distance
  for (int64_t b = 0; b < count; ++b) first[b] = buckets.index[b * kSize];
  std::vector<T> bound(count);
  std::vector<uint8_t> flag(padded, 0);

  int32_t pick = *std::min_element(first.begin(), first.end());
  for (int64_t j = 0; j < picks; ++j) {
    out[j] = pick;
    const T* point = points + pick * int64_t{3};
    buckets.bounds(point, bound.data());
    flag_near(bound.data(), top.data(), count, flag.data());
    for (int64_t group = 0; group < count; group += 8) {
      uint64_t any;
      std::copy_n(flag.data() + group, 8, reinterpret_cast<uint8_t*>(&any));
      if (any == 0) continue;
      for (int64_t b = group; b < std::min(group + 8, count); ++b) {
        if (!flag[b]) continue;
        const int64_t at = b * kSize;
        T* d = distance.data() + at;
        top[b] = lower(buckets.x.data() + at, buckets.y.data() + at,
                       buckets.z.data() + at, kSize, point, d);
        first[b] = buckets.index[at + (std::find(d, d + kSize, top[b]) - d)];
      }
    }
    const T furthest = *std::max_element(top.begin(), top.end());
    pick = std::numeric_limits<int32_t>::max();
    for (int64_t b = 0; b < count; ++b)
      if (top[b] == furthest && first[b] < pick) pick = first[b];
  }
}

// One matrix of distances. A point without a distance to itself is none.
template <typename T>
void sample_matrix(const T* matrix, int64_t n, int64_t picks, int32_t* out) {
  std::vector<T> distance(n, std::numeric_limits<T>::infinity());
  for (int64_t i = 0; i < n; ++i)
    if (!(matrix[i * n + i] == matrix[i * n + i]))
      distance[i] = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t pick =
        std::max_element(distance.begin(), distance.end()) -
        distance.begin();
    out[j] = static_cast<int32_t>(pick);
    lower_by_row(matrix + pick * n, n, distance.data());
  }
}

template <typename F>
Tensor sample(const Tensor& input, int64_t picks, const char* name,
              const F& one) {
  const Tensor points = compute_tensor(input);
  const int64_t B = points.size(0), N = points.size(1);
  const int64_t width = points.size(2);
  STD_TORCH_CHECK(N > 0 || picks == 0, name, ": no points to pick from");
  Tensor out = torch::stable::new_empty(points, {B, picks}, ScalarType::Int);
  int32_t* to = out.mutable_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "furthest_point_sample", {
    const scalar_t* from = points.const_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, B, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        one(from + b * N * width, N, picks, to + b * picks);
    });
  });
  return out;
}

Tensor furthest_point_sample(const Tensor& points, int64_t picks) {
  return sample(points, picks, "furthest_point_sample",
                [](auto... arguments) { sample_cloud(arguments...); });
}

Tensor furthest_point_sample_with_dist(const Tensor& matrix, int64_t picks) {
  return sample(matrix, picks, "furthest_point_sample_with_dist",
                [](auto... arguments) { sample_matrix(arguments...); });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("furthest_point_sample", TORCH_BOX(&furthest_point_sample));
  m.impl("furthest_point_sample_with_dist",
         TORCH_BOX(&furthest_point_sample_with_dist));
}

}  // namespace mmturbox
