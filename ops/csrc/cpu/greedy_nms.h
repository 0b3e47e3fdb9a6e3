// The greedy loop that every non-maximum suppression of this folder shares.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "../common/stable.h"

namespace mmturbox {

// Indices by falling score. Equal scores keep their order, NaN comes first,
// both as in torch.sort(descending=True, stable=True).
template <typename T>
std::vector<int64_t> score_order(const T* scores, int64_t n, int64_t stride) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t(0));
  std::stable_sort(order.begin(), order.end(), [=](int64_t i, int64_t j) {
    const T a = scores[i * stride], b = scores[j * stride];
    return a > b || (a != a && b == b);
  });
  return order;
}

// Walk the boxes by rank. `mark(rank, begin, end, removed)` sets removed[r]
// for those ranks r in [begin, end) that the box of `rank` suppresses; it is
// called on several threads for disjoint ranges. `kept(rank)` is told each
// box that stays, before anything is marked.
template <typename Kept, typename Mark>
void greedy_nms(int64_t n, int64_t grain, Kept kept, Mark mark) {
  std::vector<uint8_t> removed(n, 0);
  for (int64_t rank = 0; rank < n; ++rank) {
    if (removed[rank]) continue;
    kept(rank);
    torch::stable::parallel_for(
        rank + 1, n, grain, [&](int64_t begin, int64_t end) {
          mark(rank, begin, end, removed.data());
        });
  }
}

inline Tensor to_tensor(const std::vector<int64_t>& values,
                        const Tensor& like) {
  Tensor out = torch::stable::new_empty(
      like, {static_cast<int64_t>(values.size())}, ScalarType::Long);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

}  // namespace mmturbox
