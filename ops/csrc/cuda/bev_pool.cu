// CUDA kernels of BEV pooling. Nobody shares an output: no atomics.
#include "bev_pool.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "device.h"

namespace mmturbox {
namespace {

using Half = torch::headeronly::Half;
using BFloat16 = torch::headeronly::BFloat16;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename T>
struct SumType {
  using type = float;
};
template <>
struct SumType<double> {
  using type = double;
};

// V neighbouring channels, moved by one instruction of at most 16 bytes.
template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

// Reads 24 MB and writes 8 MB at 6 x 118 x 32 x 88 points.
template <typename T>
__global__ void cells_kernel(const T* points, int64_t count, BevGrid grid,
                             int32_t* cells) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x +
                   threadIdx.x;
       i < count; i += step)
    cells[i] = bev_cell(points + i * 3, grid);
}

// Reads 8 MB and writes 8 MB at 6 x 118 x 32 x 88 points.
__global__ void keys_kernel(const int32_t* cells, int64_t count,
                            int64_t per_sample, int64_t num_cells,
                            int64_t rows, int32_t* keys) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x +
                   threadIdx.x;
       i < count; i += step) {
    const int64_t cell = cells[i];
    const bool inside = cell >= 0 && cell < num_cells;
    keys[i] = static_cast<int32_t>(
        inside ? i / per_sample * num_cells + cell : rows);
  }
}

// Reads 16 MB and writes 16 MB at 6 x 118 x 32 x 88 points.
__global__ void lists_kernel(const int64_t* order, int64_t count,
                             int64_t per_image, int64_t per_map,
                             int32_t* points, int32_t* pixels) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x +
                   threadIdx.x;
       i < count; i += step) {
    const int64_t point = order[i];
    points[i] = static_cast<int32_t>(point);
    pixels[i] = static_cast<int32_t>(point / per_image * per_map +
                                     point % per_map);
  }
}

// A search of 21 steps for each of 129,600 cells; the keys (8 MB) stay in
// the second cache.
__global__ void starts_kernel(const int32_t* keys, int64_t count,
                              int64_t rows, int32_t* starts) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row > rows) return;
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < row)
      low = middle + 1;
    else
      high = middle;
  }
  starts[row] = static_cast<int32_t>(low);
}

// A group of threads owns a cell, a thread V of its channels: one store, in
// whole vectors. At 6 x 118 x 32 x 88 points, 80 float32 channels and
// 360 x 360 cells it must move 71 MB of device memory (15 us at 4.8 TB/s);
// it reads 590 MB of features through the second cache, which holds them all
// (5.4 MB): about 100 us at 6 TB/s.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(const T* __restrict__ depth, const T* __restrict__ context,
                const int32_t* __restrict__ points,
                const int32_t* __restrict__ pixels,
                const int32_t* __restrict__ starts, int64_t rows,
                int64_t channels, int group, T* __restrict__ out) {
  using Sum = typename SumType<T>::type;
  using Vec = Pack<T, V>;
  const int groups = kThreads / group;
  const int own = threadIdx.x / group;
  if (own >= groups) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * groups + own;
       row < rows; row += step) {
    const int32_t begin = starts[row], end = starts[row + 1];
    for (int64_t c = static_cast<int64_t>(threadIdx.x % group) * V;
         c < channels; c += static_cast<int64_t>(group) * V) {
      Sum sum[V];
      for (int k = 0; k < V; ++k) sum[k] = 0;
#ifdef __CUDACC__
#pragma unroll 4
#endif
      for (int32_t p = begin; p < end; ++p) {
        const Sum d = static_cast<Sum>(depth[points[p]]);
        const Vec x = *reinterpret_cast<const Vec*>(
            context + pixels[p] * channels + c);
        for (int k = 0; k < V; ++k) sum[k] += d * static_cast<Sum>(x.value[k]);
      }
      Vec result;
      for (int k = 0; k < V; ++k) result.value[k] = static_cast<T>(sum[k]);
      *reinterpret_cast<Vec*>(out + row * channels + c) = result;
    }
  }
}

// A warp owns a pixel, a lane R vectors of its channels; both gradients come
// from one pass over the pixel's bins. The warps of a block take pixels above
// each other, which at one depth mostly lie in one cell, so that its row is
// read once from the second cache. At the shape above it must move 68 MB of
// device memory (14 us at 4.8 TB/s) and reads up to 590 MB through the caches.
template <typename T, int V, int R>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const T* __restrict__ grad, const T* __restrict__ depth,
                     const T* __restrict__ context,
                     const int32_t* __restrict__ cells, BevPoolShape s,
                     typename SumType<T>::type* __restrict__ grad_depth,
                     T* __restrict__ grad_context) {
  using Sum = typename SumType<T>::type;
  using Vec = Pack<T, V>;
  const int lane = threadIdx.x % 32;
  const int64_t strips = ceil_div(s.height, kWarps);
  const int64_t image = blockIdx.x / (strips * s.width);
  const int64_t w = blockIdx.x % s.width;
  const int64_t h =
      blockIdx.x / s.width % strips * kWarps + threadIdx.x / 32;
  if (h >= s.height) return;
  const int64_t map = s.height * s.width, at = h * s.width + w;
  const int64_t pixel = image * map + at;
  const int64_t row0 = image / s.images_per_sample * s.num_cells;
  constexpr int kChunk = 32 * V * R;
  for (int64_t c0 = 0; c0 < s.channels; c0 += kChunk) {
    Sum x[R][V], sum[R][V];
    for (int r = 0; r < R; ++r) {
      const int64_t c = c0 + (r * 32 + lane) * V;
      Vec loaded;
      if (c < s.channels)
        loaded = *reinterpret_cast<const Vec*>(context + pixel * s.channels +
                                               c);
      for (int k = 0; k < V; ++k) {
        x[r][k] = c < s.channels ? static_cast<Sum>(loaded.value[k]) : Sum(0);
        sum[r][k] = 0;
      }
    }
    for (int64_t d = 0; d < s.depth; ++d) {
      const int64_t point = (image * s.depth + d) * map + at;
      const int64_t cell = cells[point];
      const bool inside = cell >= 0 && cell < s.num_cells;
      Sum dot = 0;
      if (inside) {
        const Sum weight = static_cast<Sum>(depth[point]);
        const T* row = grad + (row0 + cell) * s.channels;
        for (int r = 0; r < R; ++r) {
          const int64_t c = c0 + (r * 32 + lane) * V;
          if (c >= s.channels) continue;
          const Vec g = *reinterpret_cast<const Vec*>(row + c);
          for (int k = 0; k < V; ++k) {
            const Sum value = static_cast<Sum>(g.value[k]);
            dot += value * x[r][k];
            sum[r][k] += value * weight;
          }
        }
        for (int offset = 16; offset > 0; offset /= 2)
          dot += __shfl_xor_sync(kFullWarp, dot, offset);
      }
      if (lane == 0)
        grad_depth[point] = c0 == 0 ? dot : grad_depth[point] + dot;
    }
    for (int r = 0; r < R; ++r) {
      const int64_t c = c0 + (r * 32 + lane) * V;
      if (c >= s.channels) continue;
      Vec result;
      for (int k = 0; k < V; ++k) result.value[k] = static_cast<T>(sum[r][k]);
      *reinterpret_cast<Vec*>(grad_context + pixel * s.channels + c) = result;
    }
  }
}

unsigned strided_blocks(int64_t count) {
  return grid_of(ceil_div(count, kThreads));
}

// Whether rows of `channels` can be moved in vectors of 16 bytes.
template <typename T>
bool whole_vectors(int64_t channels, const T* a, const T* b, const T* c) {
  const auto address = reinterpret_cast<uintptr_t>(a) |
                       reinterpret_cast<uintptr_t>(b) |
                       reinterpret_cast<uintptr_t>(c);
  return (channels * sizeof(T) | address) % 16 == 0;
}

}  // namespace

template <typename T>
void bev_cells_cuda(const T* points, int64_t count, const BevGrid& grid,
                    int32_t* cells, Stream stream) {
  MMTURBOX_LAUNCH(cells_kernel<T>, strided_blocks(count), kThreads, 0, stream,
                  points, count, grid, cells);
}

void bev_pool_keys_cuda(const int32_t* cells, int64_t count,
                        int64_t per_sample, int64_t num_cells, int64_t rows,
                        int32_t* keys, Stream stream) {
  MMTURBOX_LAUNCH(keys_kernel, strided_blocks(count), kThreads, 0, stream,
                  cells, count, per_sample, num_cells, rows, keys);
}

void bev_pool_lists_cuda(const int32_t* keys, const int64_t* order,
                         int64_t count, int64_t per_image, int64_t per_map,
                         int64_t rows, int32_t* points, int32_t* pixels,
                         int32_t* starts, Stream stream) {
  MMTURBOX_LAUNCH(lists_kernel, strided_blocks(count), kThreads, 0, stream,
                  order, count, per_image, per_map, points, pixels);
  MMTURBOX_LAUNCH(starts_kernel, strided_blocks(rows + 1), kThreads, 0,
                  stream, keys, count, rows, starts);
}

template <typename T>
void bev_pool_cuda(const T* depth, const T* context, const int32_t* points,
                   const int32_t* pixels, const int32_t* starts, int64_t rows,
                   int64_t channels, T* out, Stream stream) {
  constexpr int kPack = 16 / sizeof(T);
  const bool whole = whole_vectors<T>(channels, context, out, out);
  const int64_t vectors = whole ? channels / kPack : channels;
  const int group =
      static_cast<int>(vectors < kThreads ? vectors : kThreads);
  if (group == 0) return;
  const unsigned blocks = grid_of(ceil_div(rows, kThreads / group));
  if (whole)
    MMTURBOX_LAUNCH((pool_kernel<T, kPack>), blocks, kThreads, 0, stream,
                    depth, context, points, pixels, starts, rows, channels,
                    group, out);
  else
    MMTURBOX_LAUNCH((pool_kernel<T, 1>), blocks, kThreads, 0, stream, depth,
                    context, points, pixels, starts, rows, channels, group,
                    out);
}

template <typename T, typename Sum>
void bev_pool_backward_cuda(const T* grad, const T* depth, const T* context,
                            const int32_t* cells, const BevPoolShape& shape,
                            Sum* grad_depth, T* grad_context, Stream stream) {
  constexpr int kPack = 16 / sizeof(T);
  const unsigned blocks = grid_of(
      shape.images * ceil_div(shape.height, kWarps) * shape.width);
  if (whole_vectors<T>(shape.channels, context, grad, grad_context))
    MMTURBOX_LAUNCH((gradients_kernel<T, kPack, 1>), blocks, kThreads, 0,
                    stream, grad, depth, context, cells, shape, grad_depth,
                    grad_context);
  else
    MMTURBOX_LAUNCH((gradients_kernel<T, 1, 4>), blocks, kThreads, 0, stream,
                    grad, depth, context, cells, shape, grad_depth,
                    grad_context);
}

template void bev_cells_cuda(const float*, int64_t, const BevGrid&, int32_t*,
                             Stream);
template void bev_cells_cuda(const double*, int64_t, const BevGrid&,
                             int32_t*, Stream);
#define MMTURBOX_BEV_POOL(T, Sum)                                           \
  template void bev_pool_cuda(const T*, const T*, const int32_t*,           \
                              const int32_t*, const int32_t*, int64_t,      \
                              int64_t, T*, Stream);                         \
  template void bev_pool_backward_cuda(const T*, const T*, const T*,        \
                                       const int32_t*, const BevPoolShape&, \
                                       Sum*, T*, Stream);
MMTURBOX_BEV_POOL(float, float)
MMTURBOX_BEV_POOL(double, double)
MMTURBOX_BEV_POOL(Half, float)
MMTURBOX_BEV_POOL(BFloat16, float)

}  // namespace mmturbox
