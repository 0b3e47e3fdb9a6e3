// A map from cell numbers to small indices, for one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace mmturbox {

// Small grids are indexed directly; of large ones only the cells in use are
// stored (open addressing, at most half full), so cost follows the points
// and not the volume.
class CellTable {
 public:
  CellTable(int64_t num_cells, int64_t max_entries)
      : direct_(num_cells <= (int64_t{1} << 20)) {
    int64_t slots = num_cells;
    if (!direct_) {
      int bits = 4;
      while ((int64_t{1} << bits) < 2 * max_entries) ++bits;
      slots = int64_t{1} << bits;
      shift_ = 64 - bits;
      keys_.resize(slots);
    }
    values_.assign(slots, -1);
  }

  void clear() { values_.assign(values_.size(), -1); }

  // The value of `key`; -1 if it was not there. Setting it through the
  // reference to something >= 0 inserts it.
  int32_t& operator[](int64_t key) {
    if (direct_) return values_[key];
    const uint64_t mask = values_.size() - 1;
    uint64_t slot =
        (static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15ull) >> shift_;
    while (values_[slot] >= 0 && keys_[slot] != key) slot = (slot + 1) & mask;
    keys_[slot] = key;
    return values_[slot];
  }

 private:
  bool direct_;
  int shift_ = 0;
  std::vector<int64_t> keys_;
  std::vector<int32_t> values_;
};

}  // namespace mmturbox
