// CUDA kernels of pillar pooling. Sums are made in two steps, a block's
// pillars first and the blocks' sums next, each in a fixed order and in
// double: no atomics. Bytes are those of 30,000 pillars with room for 20
// points of 64 float32 channels, a third of them there.
#include "pillar_pool.h"

#include "each.h"

namespace mmturbox {
namespace {

MMTURBOX_HD int64_t points_in(const int32_t* num_points, int64_t m,
                              int64_t P) {
  const int64_t number = num_points[m];
  return number < 0 ? 0 : (number < P ? number : P);
}

// Sums over a block's pillars, of the values or (with a mean) of their
// squared deviations. Lanes of threads share the pillars of a channel.
// Reads 51 MB, writes 0.12 MB.
template <typename T>
__global__ void channel_sums_kernel(const T* values,
                                    const int32_t* num_points, int64_t M,
                                    int64_t P, int64_t F, const T* mean,
                                    double* partial) {
  MMTURBOX_SHARED(double, shared, kThreads);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kThreads;
  const int width = static_cast<int>(F - first < kThreads ? F - first
                                                          : kThreads);
  const int lanes = kThreads / width, lane = threadIdx.x / width;
  const int64_t f = first + threadIdx.x % width;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPillars;
  const int64_t end = begin + kPillars < M ? begin + kPillars : M;
  double sum = 0;
  for (int64_t m = begin + lane; lane < lanes && m < end; m += lanes) {
    const int64_t number = points_in(num_points, m, P);
    const T* column = values + m * P * F + f;
    for (int64_t p = 0; p < number; ++p) {
      const T off = mean != nullptr ? column[p * F] - mean[f] : column[p * F];
      sum += mean != nullptr ? off * off : off;
    }
    if (mean != nullptr)
      sum += static_cast<double>(P - number) * (mean[f] * mean[f]);
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (lane != 0) return;
  for (int l = 1; l < lanes; ++l) sum += shared[l * width + threadIdx.x];
  partial[blockIdx.x * F + f] = sum;
}

// sums[k] = sum of the blocks' sums over `divisor`, in their order.
template <typename T>
__global__ void fold_kernel(const double* partial, int64_t blocks,
                            int64_t width, double divisor, T* sums) {
  MMTURBOX_EACH(k, width) {
    double sum = 0;
    for (int64_t b = 0; b < blocks; ++b) sum += partial[b * width + k];
    sums[k] = static_cast<T>(sum / divisor);
  }
}

// Reads 51 MB, writes 15 MB.
template <typename T>
__global__ void pool_kernel(const T* values, const int32_t* num_points,
                            const T* mean, const T* invstd, const T* weight,
                            const T* bias, int64_t M, int64_t P, int64_t F,
                            T* pooled, int32_t* index) {
  MMTURBOX_EACH(e, M * F) {
    const int64_t m = e / F, f = e % F;
    const T alpha = invstd[f] * weight[f];
    const T beta = std::fma(-mean[f], alpha, bias[f]);
    const int64_t number = points_in(num_points, m, P);
    T best = -INFINITY;
    int32_t where = 0;
    // An empty row stands for all; a NaN must come out.
    for (int64_t p = 0; p < number || (p == number && number < P); ++p) {
      const T value = p < number
                          ? std::fma(values[(m * P + p) * F + f], alpha, beta)
                          : beta;
      if (value <= best) continue;
      best = value;
      where = static_cast<int32_t>(p);
    }
    pooled[e] = best <= 0 ? T(0) : best;
    index[e] = where;
  }
}

// A thread an output, over a block's pillars. Reads 8 + 15 MB, the points
// (ten values) from the cache but for the first time; 0.2 G operations in
// double.
template <typename T>
__global__ void grads_kernel(const T* points, const int32_t* num_points,
                             const int32_t* index, const T* grad, int64_t M,
                             int64_t P, int64_t K, int64_t F,
                             double* partial) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPillars;
  const int64_t end = begin + kPillars < M ? begin + kPillars : M;
  const int64_t outputs = F * K + K * K + K;
  for (int64_t o = threadIdx.x; o < outputs; o += kThreads) {
    double sum = 0;
    if (o < F * K) {
      const int64_t f = o / K, k = o % K;
      for (int64_t m = begin; m < end; ++m)
        sum += static_cast<double>(grad[m * F + f]) *
               points[(m * P + index[m * F + f]) * K + k];
    } else {
      const int64_t i = (o - F * K) / K, j = (o - F * K) % K;
      for (int64_t m = begin; m < end; ++m)
        for (int64_t p = 0; p < points_in(num_points, m, P); ++p) {
          const T* row = points + (m * P + p) * K;
          // Rows K and beyond of the outputs are sums of the points.
          sum += i < K ? static_cast<double>(row[i]) * row[j]
                       : static_cast<double>(row[j]);
        }
    }
    partial[blockIdx.x * outputs + o] = sum;
  }
}

int64_t blocks_of(int64_t M) { return ceil_div(M, kPillars); }

}  // namespace

template <typename T>
void pillar_stats_cuda(const T* values, const int32_t* num_points, int64_t M,
                       int64_t P, int64_t F, double* partial, T* mean,
                       T* var_sum, Stream stream) {
  const int64_t blocks = blocks_of(M);
  const dim3 grid(grid_of(blocks),
                  static_cast<unsigned>(ceil_div(F, kThreads)));
  const T* none = nullptr;
  MMTURBOX_LAUNCH((channel_sums_kernel<T>), grid, kThreads, 0, stream, values,
                  num_points, M, P, F, none, partial);
  MMTURBOX_LAUNCH((fold_kernel<T>), blocks_for(F), kThreads, 0, stream,
                  partial, blocks, F, static_cast<double>(M * P), mean);
  MMTURBOX_LAUNCH((channel_sums_kernel<T>), grid, kThreads, 0, stream, values,
                  num_points, M, P, F, mean, partial);
  MMTURBOX_LAUNCH((fold_kernel<T>), blocks_for(F), kThreads, 0, stream,
                  partial, blocks, F, 1., var_sum);
}

template <typename T>
void pillar_pool_cuda(const T* values, const int32_t* num_points,
                      const T* mean, const T* invstd, const T* weight,
                      const T* bias, int64_t M, int64_t P, int64_t F,
                      T* pooled, int32_t* index, Stream stream) {
  MMTURBOX_LAUNCH((pool_kernel<T>), blocks_for(M * F), kThreads, 0, stream,
                  values, num_points, mean, invstd, weight, bias, M, P, F,
                  pooled, index);
}

template <typename T>
void pillar_grads_cuda(const T* points, const int32_t* num_points,
                       const int32_t* index, const T* grad, int64_t M,
                       int64_t P, int64_t K, int64_t F, double* partial,
                       double* sums, Stream stream) {
  const int64_t blocks = blocks_of(M), outputs = F * K + K * K + K;
  MMTURBOX_LAUNCH((grads_kernel<T>), grid_of(blocks), kThreads, 0, stream,
                  points, num_points, index, grad, M, P, K, F, partial);
  MMTURBOX_LAUNCH((fold_kernel<double>), blocks_for(outputs), kThreads, 0,
                  stream, partial, blocks, outputs, 1., sums);
}

#define MMTURBOX_INSTANTIATE(T)                                             \
  template void pillar_stats_cuda(const T*, const int32_t*, int64_t,        \
                                  int64_t, int64_t, double*, T*, T*,        \
                                  Stream);                                  \
  template void pillar_pool_cuda(const T*, const int32_t*, const T*,        \
                                 const T*, const T*, const T*, int64_t,     \
                                 int64_t, int64_t, T*, int32_t*, Stream);   \
  template void pillar_grads_cuda(const T*, const int32_t*, const int32_t*, \
                                  const T*, int64_t, int64_t, int64_t,      \
                                  int64_t, double*, double*, Stream);
MMTURBOX_INSTANTIATE(float)
MMTURBOX_INSTANTIATE(double)
#undef MMTURBOX_INSTANTIATE

}  // namespace mmturbox
