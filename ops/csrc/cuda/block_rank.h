// The order of items that some threads of a block keep.
#pragma once

#include "each.h"

namespace mmturbox {

struct BlockRank {
  int before;  // items that threads with a lower index keep
  int total;   // items that the block keeps
};

// For blocks of kThreads, all of which call. `shared` has kThreads / 32
// places, which must not be those of the call before.
__device__ inline BlockRank block_rank(bool keep, int* shared) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned kept = __ballot_sync(kFullWarp, keep);
  if (lane == 0) shared[warp] = __popc(kept);
  __syncthreads();
  BlockRank rank{__popc(kept & ((1u << lane) - 1)), 0};
  for (unsigned w = 0; w < kThreads / 32; ++w) {
    if (w < warp) rank.before += shared[w];
    rank.total += shared[w];
  }
  return rank;
}

}  // namespace mmturbox
