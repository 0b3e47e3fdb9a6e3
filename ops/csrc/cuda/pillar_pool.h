// Launches of pillar_pool.cu: M pillars with room for P points, of which the
// first num_points[m] (at most P) are there and the rest are zero.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

constexpr int64_t kPillars = 128;  // of which a block makes one partial sum

// mean (F,) and sum of squared deviations (F,) of values (M, P, F);
// `partial` has room for ceil(M / kPillars) * F.
template <typename T>
void pillar_stats_cuda(const T* values, const int32_t* num_points, int64_t M,
                       int64_t P, int64_t F, double* partial, T* mean,
                       T* var_sum, Stream stream);

template <typename T>
void pillar_pool_cuda(const T* values, const int32_t* num_points,
                      const T* mean, const T* invstd, const T* weight,
                      const T* bias, int64_t M, int64_t P, int64_t F,
                      T* pooled, int32_t* index, Stream stream);

// `sums` holds (F, K), (K, K) and (K,) one after the other; `partial` has
// room for ceil(M / kPillars) times that.
template <typename T>
void pillar_grads_cuda(const T* points, const int32_t* num_points,
                       const int32_t* index, const T* grad, int64_t M,
                       int64_t P, int64_t K, int64_t F, double* partial,
                       double* sums, Stream stream);

}  // namespace mmturbox
