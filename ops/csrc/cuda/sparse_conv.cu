// CUDA kernels of sparse convolution: products of gathered rows, in tiles
// that are staged in shared memory. Sums are kept in registers, in float32 for
// half precision, and are taken in a fixed order: there are no atomics.
// Operations are those of 59,000 rows of 64 channels, 27 taps, 960,000 pairs
// (stride 4 of BEVFusion): 7.9 GFLOP, 0.13 ms at the 60 TFLOP/s of float32
// outside of tensor cores, which are not used yet.
#include "sparse_conv.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "each.h"

namespace mmturbox {
namespace {

using Half = torch::headeronly::Half;
using BFloat16 = torch::headeronly::BFloat16;

// The type that sums are taken in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

// V neighbouring channels, moved by one instruction.
template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

constexpr int kBlock = 128;         // threads of a block
constexpr int kDepth = 16;          // of a product in shared memory
constexpr int kRows = 64;           // output rows of a block
constexpr int64_t kPartRows = 4096;  // output rows of a part, at least
constexpr int64_t kMaxParts = 64;

// to[0:V] = row[c:c + V], summed over the chain; zeros for row -1.
template <typename T, int V, typename W>
MMTURBOX_HD void read_row(const SparseReads<T>& in, int64_t row, int64_t c,
                          bool chained, W* to) {
  for (int v = 0; v < V; ++v) to[v] = 0;
  while (row >= 0) {
    const auto pack = *reinterpret_cast<const Pack<T, V>*>(
        in.rows + row * in.channels + c);
    for (int v = 0; v < V; ++v) to[v] += static_cast<W>(pack.value[v]);
    row = chained ? in.chain[row] : -1;
  }
}

// A block computes kRows outputs by N channels, thread (i, j) of 128 / (N / B)
// by N / B threads a tile of A by B. For each tap that any of its rows reads,
// rows and weights are staged kDepth channels at a time. Moves: each pair's
// row once a column tile (250 MB here, mostly from the cache), tables 6 MB,
// weights 0.4 MB a block from the cache. Rows of a tile that do not read the
// tap cost operations all the same: 27 of 16 taps here.
template <typename T, int N, int A, int B, int V>
__global__ void __launch_bounds__(kBlock)
    conv_kernel(SparseReads<T> in, const T* weight, const T* bias,
                int64_t width, bool relu, T* out) {
  using W = typename Wide<T>::type;
  static_assert((kRows / A) * (N / B) == kBlock, "one tile a thread");
  MMTURBOX_SHARED(W, rows, kDepth * (kRows + 1));
  MMTURBOX_SHARED(W, weights, kDepth * N);
  MMTURBOX_SHARED(int32_t, source, kRows);
  MMTURBOX_SHARED(int, any, kRows / 32);
  const int t = threadIdx.x;
  const int i = t / (N / B) * A, j = t % (N / B) * B;
  const int64_t first = blockIdx.x * int64_t{kRows};
  const int64_t column = blockIdx.y * int64_t{N};
  W sum[A][B] = {};
  for (int64_t tap = 0; tap < in.taps; ++tap) {
    __syncthreads();
    if (t < kRows) {
      const int64_t m = first + t;
      source[t] = m < in.outputs ? in.table[tap * in.outputs + m] : -1;
      const int reads = __any_sync(kFullWarp, source[t] >= 0);
      if (t % 32 == 0) any[t / 32] = reads;
    }
    __syncthreads();
    int reads = 0;
    for (int w = 0; w < kRows / 32; ++w) reads |= any[w];
    if (!reads) continue;
    const bool chained = in.chain != nullptr && tap != in.unchained;
    for (int64_t depth = 0; depth < in.channels; depth += kDepth) {
      for (int e = t; e < kRows * kDepth / V; e += kBlock) {
        const int r = e / (kDepth / V), c = e % (kDepth / V) * V;
        W value[V] = {};
        if (depth + c < in.channels)
          read_row<T, V>(in, source[r], depth + c, chained, value);
        for (int v = 0; v < V; ++v)
          rows[(c + v) * (kRows + 1) + r] = value[v];
      }
      for (int e = t; e < kDepth * N; e += kBlock) {
        const int64_t c = depth + e / N, n = column + e % N;
        weights[e] = c < in.channels && n < width
                         ? static_cast<W>(
                               weight[(tap * in.channels + c) * width + n])
                         : W(0);
      }
      __syncthreads();
      for (int d = 0; d < kDepth; ++d) {
        W a[A], b[B];
        for (int r = 0; r < A; ++r) a[r] = rows[d * (kRows + 1) + i + r];
        for (int c = 0; c < B; ++c) b[c] = weights[d * N + j + c];
        for (int r = 0; r < A; ++r)
          for (int c = 0; c < B; ++c) sum[r][c] += a[r] * b[c];
      }
      __syncthreads();
    }
  }
  for (int r = 0; r < A; ++r)
    for (int c = 0; c < B; ++c) {
      const int64_t m = first + i + r, n = column + j + c;
      if (m >= in.outputs || n >= width) continue;
      W value = sum[r][c];
      if (bias != nullptr) value += static_cast<W>(bias[n]);
      if (relu && value < 0) value = 0;
      out[m * width + n] = static_cast<T>(value);
    }
}

// A block sums one part of the outputs for one tap and a tile of N by N
// channels, A by B a thread. The pairs of 128 outputs are listed, then their
// rows and gradients are staged kDepth pairs at a time: no operation is spent
// on what a tap does not read. Moves a pair's row and gradient once a tile
// (490 MB here, mostly from the cache), and 15 parts of 0.4 MB.
template <typename T, int N, int A, int B, typename W>
__global__ void __launch_bounds__(kBlock)
    grad_kernel(SparseReads<T> in, const T* grad, int64_t width,
                int64_t tiles, int64_t part_rows, W* sums) {
  static_assert((N / A) * (N / B) == kBlock, "one tile a thread");
  MMTURBOX_SHARED(W, rows, kDepth * N);
  MMTURBOX_SHARED(W, grads, kDepth * N);
  MMTURBOX_SHARED(int32_t, from, kBlock);
  MMTURBOX_SHARED(int32_t, to, kBlock);
  MMTURBOX_SHARED(int, found, kBlock / 32);
  const int t = threadIdx.x;
  const int i = t / (N / B) * A, j = t % (N / B) * B;
  const int64_t tap = blockIdx.x / tiles, part = blockIdx.y;
  const int64_t across = ceil_div(width, N);
  const int64_t low = blockIdx.x % tiles / across * N;
  const int64_t column = blockIdx.x % tiles % across * N;
  const bool chained = in.chain != nullptr && tap != in.unchained;
  const int64_t begin = part * part_rows;
  const int64_t end =
      begin + part_rows < in.outputs ? begin + part_rows : in.outputs;
  W sum[A][B] = {};
  for (int64_t m = begin; m < end; m += kBlock) {
    const int32_t row =
        m + t < end ? in.table[tap * in.outputs + m + t] : -1;
    const unsigned lanes = __ballot_sync(kFullWarp, row >= 0);
    if (t % 32 == 0) found[t / 32] = __popc(lanes);
    __syncthreads();
    int place = __popc(lanes & ((1u << (t % 32)) - 1)), pairs = 0;
    for (int w = 0; w < kBlock / 32; ++w) {
      if (w < t / 32) place += found[w];
      pairs += found[w];
    }
    if (row >= 0) {
      from[place] = row;
      to[place] = static_cast<int32_t>(m - begin + t);
    }
    __syncthreads();
    for (int first = 0; first < pairs; first += kDepth) {
      for (int e = t; e < kDepth * N; e += kBlock) {
        const int p = first + e / N;
        const int64_t c = low + e % N, n = column + e % N;
        W value[1] = {};
        if (p < pairs && c < in.channels)
          read_row<T, 1>(in, from[p], c, chained, value);
        rows[e] = value[0];
        grads[e] = p < pairs && n < width
                       ? static_cast<W>(grad[(begin + to[p]) * width + n])
                       : W(0);
      }
      __syncthreads();
      for (int p = 0; p < kDepth; ++p) {
        W a[A], b[B];
        for (int r = 0; r < A; ++r) a[r] = rows[p * N + i + r];
        for (int c = 0; c < B; ++c) b[c] = grads[p * N + j + c];
        for (int r = 0; r < A; ++r)
          for (int c = 0; c < B; ++c) sum[r][c] += a[r] * b[c];
      }
      __syncthreads();
    }
  }
  for (int r = 0; r < A; ++r)
    for (int c = 0; c < B; ++c) {
      const int64_t k = low + i + r, n = column + j + c;
      if (k < in.channels && n < width)
        sums[((part * in.taps + tap) * in.channels + k) * width + n] =
            sum[r][c];
    }
}

// Reads 6.6 MB, writes 0.4 MB.
template <typename T, typename W>
__global__ void fold_kernel(const W* sums, int64_t parts, int64_t size,
                            T* out) {
  MMTURBOX_EACH(e, size) {
    W sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += sums[part * size + e];
    out[e] = static_cast<T>(sum);
  }
}

template <typename T, int N, int A, int B>
void launch_conv(const SparseReads<T>& in, const T* weight, const T* bias,
                 int64_t width, bool relu, bool packed, T* out,
                 Stream stream) {
  const dim3 grid(grid_of(ceil_div(in.outputs, kRows)),
                  static_cast<unsigned>(ceil_div(width, N)));
  if (packed)
    MMTURBOX_LAUNCH((conv_kernel<T, N, A, B, 4>), grid, kBlock, 0, stream, in,
                    weight, bias, width, relu, out);
  else
    MMTURBOX_LAUNCH((conv_kernel<T, N, A, B, 1>), grid, kBlock, 0, stream, in,
                    weight, bias, width, relu, out);
}

template <typename T, int N, int A, int B, typename Sum>
void launch_grad(const SparseReads<T>& in, const T* grad, int64_t width,
                 Sum* sums, Stream stream) {
  const int64_t parts = sparse_grad_parts(in.outputs);
  const int64_t tiles = ceil_div(in.channels, N) * ceil_div(width, N);
  const dim3 grid(grid_of(in.taps * tiles), static_cast<unsigned>(parts));
  MMTURBOX_LAUNCH((grad_kernel<T, N, A, B, Sum>), grid, kBlock, 0, stream, in,
                  grad, width, tiles,
                  ceil_div(ceil_div(in.outputs, parts), kBlock) * kBlock,
                  sums);
}

}  // namespace

template <typename T>
void sparse_conv_cuda(const SparseReads<T>& in, const T* weight,
                      const T* bias, int64_t width, bool relu, bool packed,
                      T* out, Stream stream) {
  if (width > 32)
    launch_conv<T, 64, 8, 4>(in, weight, bias, width, relu, packed, out,
                             stream);
  else if (width > 16)
    launch_conv<T, 32, 4, 4>(in, weight, bias, width, relu, packed, out,
                             stream);
  else
    launch_conv<T, 16, 4, 2>(in, weight, bias, width, relu, packed, out,
                             stream);
}

int64_t sparse_grad_parts(int64_t outputs) {
  const int64_t parts = ceil_div(outputs, kPartRows);
  return parts < 1 ? 1 : (parts < kMaxParts ? parts : kMaxParts);
}

template <typename T, typename Sum>
void sparse_weight_grad_cuda(const SparseReads<T>& in, const T* grad,
                             int64_t width, Sum* sums, T* out,
                             Stream stream) {
  const int64_t most = in.channels > width ? in.channels : width;
  const int64_t size = in.taps * in.channels * width;
  if (most > 32)
    launch_grad<T, 64, 8, 4>(in, grad, width, sums, stream);
  else if (most > 16)
    launch_grad<T, 32, 4, 2>(in, grad, width, sums, stream);
  else
    launch_grad<T, 16, 2, 1>(in, grad, width, sums, stream);
  MMTURBOX_LAUNCH((fold_kernel<T, Sum>), blocks_for(size), kThreads, 0,
                  stream, sums, sparse_grad_parts(in.outputs), size, out);
}

#define MMTURBOX_FOR_TYPE(T, SUM)                                            \
  template void sparse_conv_cuda(const SparseReads<T>&, const T*, const T*,  \
                                 int64_t, bool, bool, T*, Stream);           \
  template void sparse_weight_grad_cuda(const SparseReads<T>&, const T*,     \
                                        int64_t, SUM*, T*, Stream);
MMTURBOX_FOR_TYPE(float, float)
MMTURBOX_FOR_TYPE(double, double)
MMTURBOX_FOR_TYPE(Half, float)
MMTURBOX_FOR_TYPE(BFloat16, float)

}  // namespace mmturbox
