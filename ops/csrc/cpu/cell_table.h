// A map from cell numbers to small indices, for one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace mmturbox {

// Open addressing, at most two thirds full: cost follows the points and not
// the volume of the grid.
template <typename Key>
class CellTable {
 public:
  explicit CellTable(int64_t max_entries) {
    int bits = 4;
    while ((int64_t{1} << bits) * 2 < 3 * max_entries) ++bits;
    shift_ = 64 - bits;
    slots_.assign(size_t{1} << bits, Slot{0, -1});
  }

  // Call it some keys ahead of the lookup, which then finds its slot in the
  // cache.
  void prefetch(Key key) const { __builtin_prefetch(&slots_[place(key)], 1); }

  // The value of `key`; -1 if it was not there. Setting it through the
  // reference to something >= 0 inserts it.
  int32_t& operator[](Key key) {
    const uint64_t mask = slots_.size() - 1;
    uint64_t at = place(key);
    while (slots_[at].value >= 0 && slots_[at].key != key)
      at = (at + 1) & mask;
    slots_[at].key = key;
    return slots_[at].value;
  }

 private:
  struct Slot {
    Key key;
    int32_t value;
  };

  uint64_t place(Key key) const {
    return (static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15ull) >> shift_;
  }

  int shift_;
  std::vector<Slot> slots_;
};

}  // namespace mmturbox
