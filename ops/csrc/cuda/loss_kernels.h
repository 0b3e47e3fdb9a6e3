// Kernels that the elementwise losses share; for .cu files.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "../common/focal_loss.h"
#include "each.h"
#include "loss_options.h"

namespace mmturbox {

using Half = torch::headeronly::Half;
using BFloat16 = torch::headeronly::BFloat16;

// The sum of `value` over a block of kThreads, for thread 0, in an order that
// only depends on the thread. `shared` has a place for each warp.
template <typename T>
__device__ T block_sum(T value, T* shared) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value += __shfl_xor_sync(kFullWarp, value, lanes);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return value;
  value = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) value += shared[warp];
  return value;
}

template <typename C>
__device__ C loss_scale(const LossOptions<C>& options) {
  if (options.normalizer == nullptr) return options.factor;
  return options.factor / (*options.normalizer + C(kNormalizerEps));
}

template <typename C>
__device__ C loss_weight(const LossOptions<C>& options, int64_t i) {
  if (options.weight == nullptr) return 1;
  if (options.weight_of_value) return options.weight[i];
  // 64-bit division is slow.
  if (options.count < 0xffffffffLL)
    return options.weight[static_cast<uint32_t>(i) /
                          static_cast<uint32_t>(options.columns)];
  return options.weight[i / options.columns];
}

// `element(i)` gives loss and slope of element i without its weight.
template <typename C, typename Element>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Element element, LossOptions<C> options, C* loss,
                       C* slope, C* sums) {
  MMTURBOX_SHARED(C, shared, kThreads / 32);
  const C scale = loss_scale(options);
  C sum = 0;
  MMTURBOX_EACH(i, options.count) {
    const LossAndSlope<C> of = element(i);
    const C weight = scale * loss_weight(options, i);
    if (slope != nullptr) slope[i] = weight * of.slope;
    if (sums == nullptr)
      loss[i] = weight * of.loss;
    else
      sum += weight * of.loss;
  }
  if (sums == nullptr) return;
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block; reads kLossBlocks values at most.
template <typename C>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const C* sums, int64_t count, C* total) {
  MMTURBOX_SHARED(C, shared, kThreads / 32);
  C sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += sums[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *total = sum;
}

template <typename C, typename Element>
void run_elementwise(const Element& element, const LossOptions<C>& options,
                     C* loss, C* slope, C* sums, Stream stream) {
  const int64_t blocks = loss_blocks(options.count);
  MMTURBOX_LAUNCH((elementwise_kernel<C, Element>), grid_of(blocks), kThreads,
                  0, stream, element, options, loss, slope, sums);
  if (sums != nullptr)
    MMTURBOX_LAUNCH((sum_kernel<C>), 1u, kThreads, 0, stream, sums, blocks,
                    loss);
}

}  // namespace mmturbox
