// CPU kernel of mmturbox::k_nearest.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "../common/point_distance.h"
#include "../common/stable.h"
#include "compute.h"
#include "point_buckets.h"

namespace mmturbox {
namespace {

// The k nearest of what was offered, nearest first, ties by index.
template <typename T>
class Nearest {
 public:
  Nearest(int32_t* index, T* distance, int64_t k)
      : index_(index), distance_(distance), k_(k) {
    std::fill(index, index + k, 0);
    std::fill(distance, distance + k, std::numeric_limits<T>::infinity());
  }
  // Above this, nothing is taken.
  T limit() const {
    return found_ < k_ ? std::numeric_limits<T>::max() : distance_[k_ - 1];
  }
  void offer(T d, int32_t i) {
    if (found_ == k_ && !before(d, i, k_ - 1)) return;
    int64_t at = found_ < k_ ? found_++ : k_ - 1;
    for (; at > 0 && before(d, i, at - 1); --at) {
      distance_[at] = distance_[at - 1];
      index_[at] = index_[at - 1];
    }
    distance_[at] = d;
    index_[at] = i;
  }

 private:
  bool before(T d, int32_t i, int64_t at) const {
    return d < distance_[at] || (d == distance_[at] && i < index_[at]);
  }
  int32_t* index_;
  T* distance_;
  int64_t k_, found_ = 0;
};

template <typename T>
void offer_bucket(const PointBuckets<T>& buckets, int64_t b, const T* center,
                  Nearest<T>& nearest) {
  constexpr int64_t kSize = PointBuckets<T>::kSize;
  T d[kSize];
  buckets.distances(b, center, d);
  for (int64_t i = 0; i < kSize; ++i)
    if (d[i] <= nearest.limit())
      nearest.offer(d[i], buckets.index[b * kSize + i]);
}

// Buckets in the order of their distance, from the nearest on, until the
// next is further than the k-th neighbour.
template <typename T>
void search(const PointBuckets<T>& buckets, const T* center, T* bound,
            std::vector<std::pair<T, int64_t>>& order, Nearest<T>& nearest) {
  if (!is_point(center) || buckets.count == 0) return;
  buckets.bounds(center, bound);
  const int64_t best = std::min_element(bound, bound + buckets.count) - bound;
  offer_bucket(buckets, best, center, nearest);
  order.clear();
  for (int64_t b = 0; b < buckets.count; ++b)
    if (bound[b] <= nearest.limit() && b != best)
      order.emplace_back(bound[b], b);
  std::sort(order.begin(), order.end());
  for (const auto& next : order) {
    if (next.first > nearest.limit()) break;
    offer_bucket(buckets, next.second, center, nearest);
  }
}

std::tuple<Tensor, Tensor> k_nearest(const Tensor& points_in,
                                     const Tensor& centers_in, int64_t k) {
  const Tensor points = compute_tensor(points_in);
  const Tensor centers = compute_tensor(centers_in);
  const int64_t B = centers.size(0), M = centers.size(1);
  const int64_t N = points.size(1);
  Tensor index = torch::stable::new_empty(points, {B, M, k}, ScalarType::Int);
  Tensor distance = torch::stable::new_empty(points, {B, M, k});
  if (k == 0) return {index, distance};
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "k_nearest", {
    const scalar_t* from = points.const_data_ptr<scalar_t>();
    const scalar_t* center = centers.const_data_ptr<scalar_t>();
    int32_t* to = index.mutable_data_ptr<int32_t>();
    scalar_t* d2 = distance.mutable_data_ptr<scalar_t>();
    for (int64_t b = 0; b < B; ++b) {
      const PointBuckets<scalar_t> buckets(from + b * N * 3, N);
      torch::stable::parallel_for(
          b * M, (b + 1) * M, 64, [&](int64_t begin, int64_t end) {
            std::vector<scalar_t> bound(buckets.count);
            std::vector<std::pair<scalar_t, int64_t>> order;
            for (int64_t m = begin; m < end; ++m) {
              Nearest<scalar_t> nearest(to + m * k, d2 + m * k, k);
              search(buckets, center + m * 3, bound.data(), order, nearest);
            }
          });
    }
  });
  return {index, distance};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("k_nearest", TORCH_BOX(&k_nearest));
}

}  // namespace mmturbox
