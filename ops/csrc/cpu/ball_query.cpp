// CPU kernels of mmturbox::ball_query{,_stacked}.
#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "../common/point_distance.h"
#include "../common/stable.h"
#include "compute.h"
#include "point_buckets.h"

namespace mmturbox {
namespace {

// The first points are looked at in their order. Where they hold an eighth of
// what is asked for, so are the others, until the ball is full; a smaller
// ball is looked up in the buckets.
constexpr int64_t kPrefix = 512, kShare = 8;

template <typename T>
struct Ball {
  T min2, max2;
  int64_t samples;
};

// The points of a cloud in their order; filled up by infinity.
template <typename T>
struct InOrder {
  int64_t padded;
  std::vector<T> rows;
  std::vector<int32_t> index;
  InOrder(const T* points, int64_t n)
      : padded((n + PointBuckets<T>::kSize - 1) / PointBuckets<T>::kSize *
               PointBuckets<T>::kSize),
        rows(3 * padded, std::numeric_limits<T>::infinity()),
        index(padded) {
    std::iota(index.begin(), index.end(), 0);
    for (int64_t i = 0; i < n; ++i)
      for (int axis = 0; axis < 3; ++axis)
        rows[axis * padded + i] = points[i * 3 + axis];
  }
};

// hits[i] = whether point i is in the ball; returns how many are.
template <typename T, typename Mask>
inline __attribute__((always_inline)) int64_t hit_loop(
    const T* x, const T* y, const T* z, const T* center, T min2, T max2,
    Mask* hits) {
  const T cx = center[0], cy = center[1], cz = center[2];
  Mask sum = 0;
  for (int64_t i = 0; i < PointBuckets<T>::kSize; ++i) {
    const T d2 = squared_length(x[i] - cx, y[i] - cy, z[i] - cz);
    hits[i] = in_shell(d2, min2, max2);
    sum += hits[i];
  }
  return sum;
}

// The mask is as wide as the coordinate, so that the loop vectorises.
MMTURBOX_CLONES int64_t count_hits(const float* x, const float* y,
                                   const float* z, const float* center,
                                   float min2, float max2, int32_t* hits) {
  return hit_loop(x, y, z, center, min2, max2, hits);
}
MMTURBOX_CLONES int64_t count_hits(const double* x, const double* y,
                                   const double* z, const double* center,
                                   double min2, double max2, int64_t* hits) {
  return hit_loop(x, y, z, center, min2, max2, hits);
}

template <typename T>
class Finder {
  static constexpr int64_t kSize = PointBuckets<T>::kSize;
  using Mask = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

 public:
  Finder(const PointBuckets<T>& buckets, const InOrder<T>& in_order,
         const Ball<T>& ball)
      : buckets_(buckets), in_order_(in_order), ball_(ball),
        bound_(buckets.count) {}

  // The lowest `samples` indices in the ball, ascending.
  const std::vector<int32_t>& find(const T* center) {
    found_.clear();
    const int64_t n = in_order_.padded;
    scan(0, std::min(n, kPrefix), center);
    const auto found = static_cast<int64_t>(found_.size());
    if (found * kShare >= ball_.samples)
      scan(kPrefix, n, center);
    else if (n > kPrefix)
      look_up(center);
    if (full()) found_.resize(ball_.samples);
    return found_;
  }

 private:
  bool full() const {
    return static_cast<int64_t>(found_.size()) >= ball_.samples;
  }
  void scan(int64_t begin, int64_t end, const T* center) {
    for (int64_t i = begin; i < end && !full(); i += kSize) {
      const T* x = in_order_.rows.data() + i;
      take(x, x + in_order_.padded, x + 2 * in_order_.padded,
           in_order_.index.data() + i, center);
    }
  }
  void look_up(const T* center) {
    found_.clear();
    buckets_.bounds(center, bound_.data());
    for (int64_t b = 0; b < buckets_.count; ++b) {
      if (!(bound_[b] < ball_.max2 || bound_[b] == 0)) continue;
      const int64_t at = b * kSize;
      take(buckets_.x.data() + at, buckets_.y.data() + at,
           buckets_.z.data() + at, buckets_.index.data() + at, center);
    }
    const auto end = full() ? found_.begin() + ball_.samples : found_.end();
    std::partial_sort(found_.begin(), end, found_.end());
  }
  void take(const T* x, const T* y, const T* z, const int32_t* index,
            const T* center) {
    Mask hits[kSize];
    if (count_hits(x, y, z, center, ball_.min2, ball_.max2, hits) == 0)
      return;
    for (int64_t i = 0; i < kSize; ++i)
      if (hits[i]) found_.push_back(index[i]);
  }

  const PointBuckets<T>& buckets_;
  const InOrder<T>& in_order_;
  Ball<T> ball_;
  std::vector<T> bound_;
  std::vector<int32_t> found_;
};

// Balls around `num` centres in one cloud; `none` is what an empty ball gets
// in its first place.
template <typename T>
void query_cloud(const T* points, int64_t n, const T* centers, int64_t num,
                 const Ball<T>& ball, int32_t none, int32_t* out) {
  const PointBuckets<T> buckets(points, n > kPrefix ? n : 0);
  const InOrder<T> in_order(points, n);
  torch::stable::parallel_for(0, num, 64, [&](int64_t begin, int64_t end) {
    Finder<T> finder(buckets, in_order, ball);
    for (int64_t m = begin; m < end; ++m) {
      const auto& found = finder.find(centers + m * 3);
      int32_t* to = out + m * ball.samples;
      std::fill(to, to + ball.samples, found.empty() ? 0 : found[0]);
      std::copy(found.begin(), found.end(), to);
      if (found.empty()) to[0] = none;
    }
  });
}

template <typename T>
Ball<T> ball_of(double min_radius, double max_radius, int64_t samples) {
  const T low = static_cast<T>(min_radius), high = static_cast<T>(max_radius);
  return {low * low, high * high, samples};
}

Tensor ball_query(const Tensor& points_in, const Tensor& centers_in,
                  double min_radius, double max_radius, int64_t samples) {
  const Tensor points = compute_tensor(points_in);
  const Tensor centers = compute_tensor(centers_in);
  const int64_t B = centers.size(0), M = centers.size(1);
  const int64_t N = points.size(1);
  Tensor out =
      torch::stable::new_empty(points, {B, M, samples}, ScalarType::Int);
  if (samples == 0) return out;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "ball_query", {
    const auto ball = ball_of<scalar_t>(min_radius, max_radius, samples);
    for (int64_t b = 0; b < B; ++b)
      query_cloud(points.const_data_ptr<scalar_t>() + b * N * 3, N,
                  centers.const_data_ptr<scalar_t>() + b * M * 3, M, ball, 0,
                  out.mutable_data_ptr<int32_t>() + b * M * samples);
  });
  return out;
}

// The end of a sample: never beyond what there is, never before its start.
int64_t end_of(int64_t start, int32_t count, int64_t available) {
  return std::min(start + std::max(count, 0), available);
}

Tensor ball_query_stacked(const Tensor& points_in, const Tensor& counts_in,
                          const Tensor& centers_in,
                          const Tensor& center_counts_in, double max_radius,
                          int64_t samples) {
  const Tensor points = compute_tensor(points_in);
  const Tensor centers = compute_tensor(centers_in);
  const Tensor counts = torch::stable::contiguous(counts_in);
  const Tensor center_counts = torch::stable::contiguous(center_counts_in);
  const int64_t N = points.size(0), M = centers.size(0);
  Tensor out = torch::stable::new_zeros(points, {M, samples},
                                        ScalarType::Int);
  if (samples == 0) return out;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "ball_query_stacked", {
    const auto ball = ball_of<scalar_t>(0, max_radius, samples);
    int32_t* to = out.mutable_data_ptr<int32_t>();
    int64_t at = 0, center = 0;
    for (int64_t b = 0; b < counts.size(0); ++b) {
      const int64_t end = end_of(at, counts.const_data_ptr<int32_t>()[b], N);
      const int64_t center_end = end_of(
          center, center_counts.const_data_ptr<int32_t>()[b], M);
      query_cloud(points.const_data_ptr<scalar_t>() + at * 3, end - at,
                  centers.const_data_ptr<scalar_t>() + center * 3,
                  center_end - center, ball, -1, to + center * samples);
      at = end;
      center = center_end;
    }
    for (; center < M; ++center) to[center * samples] = -1;
  });
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("ball_query", TORCH_BOX(&ball_query));
  m.impl("ball_query_stacked", TORCH_BOX(&ball_query_stacked));
}

}  // namespace mmturbox
