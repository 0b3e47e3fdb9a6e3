// What the launch functions of the losses take besides their input.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// In the type C that a loss is computed in.
template <typename C>
struct LossOptions {
  const C* weight;        // may be null
  bool weight_of_value;   // else of a row
  const C* normalizer;    // may be null
  C factor;
  int64_t count, columns;
};

// Enough blocks to fill the largest GPU; sums have a place for each. It
// depends on the size alone, and so do results.
constexpr int64_t kLossBlocks = 1024;
constexpr int64_t kLossThreads = 256;

inline int64_t loss_blocks(int64_t count) {
  const int64_t blocks = (count + kLossThreads - 1) / kLossThreads;
  return blocks < kLossBlocks ? blocks : kLossBlocks;
}

}  // namespace mmturbox
