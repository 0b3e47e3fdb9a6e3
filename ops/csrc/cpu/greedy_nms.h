// What the suppression kernels of this folder share.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "../common/batched_nms.h"
#include "../common/stable.h"

namespace mmturbox {

// Indices by falling score. Equal scores keep their order, NaN comes first,
// both as in torch.sort(descending=True, stable=True).
template <typename T>
std::vector<int64_t> score_order(const T* scores, int64_t n, int64_t stride) {
  std::vector<std::pair<T, int64_t>> items(n);
  for (int64_t i = 0; i < n; ++i) items[i] = {scores[i * stride], i};
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
    if (a.first > b.first) return true;
    if (a.first < b.first) return false;
    const bool a_nan = a.first != a.first, b_nan = b.first != b.first;
    return a_nan != b_nan ? a_nan : a.second < b.second;
  });
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = items[i].second;
  return order;
}

// Greedy suppression of the boxes that `order` names, best first: for each
// rank, the rank of the box that suppresses it, or its own if it is kept.
// `boxes` has `stride` numbers a box. Runs on several threads unless it is
// called from one of them. Compiled in batched_nms.cpp, for the tests of
// common/batched_nms.h.
template <typename Test>
void greedy_owners(const Test& test, const typename Test::Input* boxes,
                   int64_t stride, const int64_t* order, int64_t n,
                   int64_t* owners);

// The boxes that are kept, by rank.
template <typename Test>
std::vector<int64_t> greedy_keep(const Test& test,
                                 const typename Test::Input* boxes,
                                 const typename Test::Input* scores,
                                 int64_t n) {
  std::vector<int64_t> keep = score_order(scores, n, 1), owners(n);
  greedy_owners(test, boxes, Test::kColumns, keep.data(), n, owners.data());
  int64_t kept = 0;
  for (int64_t rank = 0; rank < n; ++rank)
    if (owners[rank] == rank) keep[kept++] = keep[rank];
  keep.resize(kept);
  return keep;
}

inline Tensor to_tensor(const std::vector<int64_t>& values,
                        const Tensor& like) {
  Tensor out = torch::stable::new_empty(
      like, {static_cast<int64_t>(values.size())}, ScalarType::Long);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

}  // namespace mmturbox
