// A stable sort of keys whose range is known, for one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace mmturbox {

// Sorts `keys` >= -1 and < `limit` in place; `order` becomes the indices they
// had before, if it is not nullptr.
inline void radix_sort(std::vector<int64_t>& keys, int64_t limit,
                       std::vector<int32_t>* order) {
  constexpr int kBits = 11;
  const int64_t n = keys.size();
  if (order) {
    order->resize(n);
    std::iota(order->begin(), order->end(), 0);
  }
  if (std::is_sorted(keys.begin(), keys.end())) return;
  std::vector<int64_t> moved(n);
  std::vector<int32_t> moved_order(order ? n : 0);
  for (int shift = 0; shift < 63 && (limit >> shift) > 0; shift += kBits) {
    int64_t place[(1 << kBits) + 1] = {};
    const auto digit = [&](int64_t key) {
      return ((key + 1) >> shift) & ((1 << kBits) - 1);
    };
    for (int64_t i = 0; i < n; ++i) ++place[digit(keys[i]) + 1];
    for (int i = 0; i < (1 << kBits); ++i) place[i + 1] += place[i];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = place[digit(keys[i])]++;
      moved[to] = keys[i];
      if (order) moved_order[to] = (*order)[i];
    }
    keys.swap(moved);
    if (order) order->swap(moved_order);
  }
}

}  // namespace mmturbox
