// CUDA kernels that reduce point features over voxels. A thread owns a few
// channels of one voxel and takes its points in order: neighbouring threads
// read neighbouring channels, sums are those of the CPU, and there are no
// atomics. Voxels hold few points (two to twenty on average), so that a tree
// over the points of one would leave most of its threads idle. Bytes are
// those of 300,000 points of 64 float32 channels in 135,000 voxels.
#include "scatter_points.h"

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

template <typename T, int V>
MMTURBOX_HD const Pack<T, V>& pack_at(const T* data, int64_t at) {
  return *reinterpret_cast<const Pack<T, V>*>(data + at);
}

// Reads 80 MB (rows scattered), writes 35 MB.
template <typename T, int V>
__global__ void reduce_kernel(const T* feats, const int32_t* count,
                              const int64_t* end, const int64_t* order,
                              int64_t voxels, int64_t channels, int64_t mode,
                              T* out) {
  using W = typename Wide<T>::type;
  const int64_t packs = channels / V;
  MMTURBOX_EACH(e, voxels * packs) {
    const int64_t m = e / packs, c = e % packs * V;
    W best[V];
    for (int v = 0; v < V; ++v) best[v] = 0;
    const int64_t begin = end[m] - count[m];
    for (int64_t j = begin; j < end[m]; ++j) {
      const Pack<T, V> row = pack_at<T, V>(feats, order[j] * channels + c);
      for (int v = 0; v < V; ++v) {
        const W value = static_cast<W>(row.value[v]);
        if (mode != kMax)
          best[v] += value;
        else if (j == begin || takes_over(value, best[v]))
          best[v] = value;
      }
    }
    Pack<T, V> result;
    for (int v = 0; v < V; ++v)
      result.value[v] = static_cast<T>(
          mode == kMean ? best[v] / static_cast<W>(count[m]) : best[v]);
    *reinterpret_cast<Pack<T, V>*>(out + m * channels + c) = result;
  }
}

// Reads 78 MB (most of it from the cache: voxels hold several points),
// writes 77 MB.
template <typename T, int V>
__global__ void sum_backward_kernel(const T* grad, const int32_t* map,
                                    const int32_t* count, bool mean,
                                    int64_t points, int64_t channels,
                                    T* out) {
  using W = typename Wide<T>::type;
  const int64_t packs = channels / V;
  MMTURBOX_EACH(e, points * packs) {
    const int64_t i = e / packs, c = e % packs * V;
    Pack<T, V> result;
    for (int v = 0; v < V; ++v) result.value[v] = static_cast<T>(0.f);
    const int64_t voxel = map[i];
    if (voxel >= 0) {
      const Pack<T, V> row = pack_at<T, V>(grad, voxel * channels + c);
      const W divisor = mean ? static_cast<W>(count[voxel]) : W(1);
      for (int v = 0; v < V; ++v)
        result.value[v] =
            static_cast<T>(static_cast<W>(row.value[v]) / divisor);
    }
    *reinterpret_cast<Pack<T, V>*>(out + i * channels + c) = result;
  }
}

// Reads at most 150 MB, writes 35 MB, scattered, into 77 MB of zeros.
template <typename T>
__global__ void max_backward_kernel(const T* grad, const T* feats,
                                    const T* reduced, const int32_t* count,
                                    const int64_t* end, const int64_t* order,
                                    int64_t voxels, int64_t channels,
                                    T* out) {
  using W = typename Wide<T>::type;
  MMTURBOX_EACH(e, voxels * channels) {
    const int64_t m = e / channels, c = e % channels;
    const W best = static_cast<W>(reduced[e]);
    for (int64_t j = end[m] - count[m]; j < end[m]; ++j) {
      const int64_t at = order[j] * channels + c;
      if (!is_maximum(static_cast<W>(feats[at]), best)) continue;
      out[at] = grad[e];
      break;
    }
  }
}

// Whether rows of both arrays can be moved in packs of V.
template <typename T, int V>
bool packs_fit(const void* a, const void* b, int64_t channels) {
  const auto bits = reinterpret_cast<uintptr_t>(a) |
                    reinterpret_cast<uintptr_t>(b);
  return channels % V == 0 && bits % (sizeof(T) * V) == 0;
}

}  // namespace

template <typename T>
void voxel_reduce_cuda(const T* feats, const int32_t* count,
                       const int64_t* end, const int64_t* order,
                       int64_t voxels, int64_t channels, int64_t mode, T* out,
                       Stream stream) {
  if (packs_fit<T, 4>(feats, out, channels))
    MMTURBOX_LAUNCH((reduce_kernel<T, 4>), blocks_for(voxels * channels / 4),
                    kThreads, 0, stream, feats, count, end, order, voxels,
                    channels, mode, out);
  else
    MMTURBOX_LAUNCH((reduce_kernel<T, 1>), blocks_for(voxels * channels),
                    kThreads, 0, stream, feats, count, end, order, voxels,
                    channels, mode, out);
}

template <typename T>
void sum_backward_cuda(const T* grad, const int32_t* map,
                       const int32_t* count, bool mean, int64_t points,
                       int64_t channels, T* out, Stream stream) {
  if (packs_fit<T, 4>(grad, out, channels))
    MMTURBOX_LAUNCH((sum_backward_kernel<T, 4>),
                    blocks_for(points * channels / 4), kThreads, 0, stream,
                    grad, map, count, mean, points, channels, out);
  else
    MMTURBOX_LAUNCH((sum_backward_kernel<T, 1>),
                    blocks_for(points * channels), kThreads, 0, stream, grad,
                    map, count, mean, points, channels, out);
}

template <typename T>
void max_backward_cuda(const T* grad, const T* feats, const T* reduced,
                       const int32_t* count, const int64_t* end,
                       const int64_t* order, int64_t voxels,
                       int64_t channels, T* out, Stream stream) {
  MMTURBOX_LAUNCH((max_backward_kernel<T>), blocks_for(voxels * channels),
                  kThreads, 0, stream, grad, feats, reduced, count, end,
                  order, voxels, channels, out);
}

#define MMTURBOX_INSTANTIATE(T)                                             \
  template void voxel_reduce_cuda(const T*, const int32_t*, const int64_t*, \
                                  const int64_t*, int64_t, int64_t,         \
                                  int64_t, T*, Stream);                     \
  template void sum_backward_cuda(const T*, const int32_t*, const int32_t*, \
                                  bool, int64_t, int64_t, T*, Stream);      \
  template void max_backward_cuda(const T*, const T*, const T*,             \
                                  const int32_t*, const int64_t*,           \
                                  const int64_t*, int64_t, int64_t, T*,     \
                                  Stream);
MMTURBOX_INSTANTIATE(float)
MMTURBOX_INSTANTIATE(double)
MMTURBOX_INSTANTIATE(Half)
MMTURBOX_INSTANTIATE(BFloat16)
#undef MMTURBOX_INSTANTIATE

}  // namespace mmturbox
