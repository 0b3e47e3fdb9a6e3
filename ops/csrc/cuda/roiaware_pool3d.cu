// CUDA kernels of RoI-aware pooling. Gradients are summed by atomics, in an
// order that varies.
#include "roiaware_pool3d.h"

#include "../common/roi_pool_box.h"
#include "block_rank.h"

namespace mmturbox {
namespace {

// A block a box: boxes x points tests of 20 operations, 2.6 M for 128 boxes
// x 20,000 points, and 12 bytes each from the second cache.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    count_kernel(RoiCells<T> cells, int64_t* counts) {
  MMTURBOX_SHARED(int, shared, kThreads / 32);
  for (int64_t r = blockIdx.x; r < cells.num_rois; r += gridDim.x) {
    const PoolBox<T> box(cells.rois + r * 7);
    int found = 0;
    for (int64_t i = threadIdx.x; i < cells.num_points; i += kThreads) {
      const T* p = cells.points + i * 3;
      found += box.holds(p[0], p[1], p[2]);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2)
      found += __shfl_xor_sync(kFullWarp, found, lanes);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = found;
    __syncthreads();
    if (threadIdx.x == 0) {
      int64_t total = 0;
      for (int w = 0; w < kThreads / 32; ++w) total += shared[w];
      counts[r] = total;
    }
    __syncthreads();
  }
}

// As count_kernel, and writes 12 bytes a point in a box.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    list_kernel(RoiCells<T> cells, const int64_t* ends, int64_t* keys,
                int32_t* points) {
  MMTURBOX_SHARED(int, shared, 2 * kThreads / 32);
  const int64_t per_box = cells.out_x * cells.out_y * cells.out_z;
  for (int64_t r = blockIdx.x; r < cells.num_rois; r += gridDim.x) {
    const PoolBox<T> box(cells.rois + r * 7);
    int64_t at = r > 0 ? ends[r - 1] : 0;
    int turn = 0;
    for (int64_t start = 0; start < cells.num_points && at < ends[r];
         start += kThreads, turn ^= 1) {
      const int64_t i = start + threadIdx.x;
      const bool real = i < cells.num_points;
      const T* p = cells.points + (real ? i : 0) * 3;
      const bool keep = real && box.holds(p[0], p[1], p[2]);
      const BlockRank rank = block_rank(keep, shared + turn * kThreads / 32);
      if (keep) {
        keys[at + rank.before] =
            r * per_box + box.cell(p[0], p[1], p[2], cells.out_x,
                                   cells.out_y, cells.out_z);
        points[at + rank.before] = static_cast<int32_t>(i);
      }
      at += rank.total;
    }
    __syncthreads();
  }
}

// A search in the keys for each cell, and 16 bytes a member: 4 MB for
// 351,232 cells.
__global__ void __launch_bounds__(kThreads)
    index_kernel(const int64_t* keys, const int64_t* order,
                 const int32_t* points, int64_t count, int64_t num_cells,
                 int64_t* starts, int32_t* members) {
  MMTURBOX_EACH(i, count) members[i] = points[order[i]];
  MMTURBOX_EACH(v, num_cells + 1) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < v)
        low = middle + 1;
      else
        high = middle;
    }
    starts[v] = low;
  }
}

__device__ int64_t end_of(const RoiMembers& m, int64_t v) {
  const int64_t limit = m.starts[v] + m.limit, end = m.starts[v + 1];
  return limit < end ? limit : end;
}

// Writes 4 bytes a cell and channel, 8 with the index of the maximum: 360 MB
// for 128 boxes x 14^3 cells x 128 channels (75 us at 4.8 TB/s); reads 4
// bytes a member and channel.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(const T* __restrict__ features, RoiMembers m, T* out,
                int32_t* argmax) {
  MMTURBOX_EACH(i, m.cells * m.channels) {
    const int64_t v = i / m.channels, c = i % m.channels;
    const int64_t begin = m.starts[v], end = end_of(m, v);
    T value = argmax != nullptr ? T(-INFINITY) : T(0);
    int32_t where = -1;
    for (int64_t k = begin; k < end; ++k) {
      const T next = features[m.members[k] * m.channels + c];
      if (argmax == nullptr) {
        value += next;
      } else if (next > value) {
        value = next;
        where = m.members[k];
      }
    }
    if (argmax != nullptr) {
      argmax[i] = where;
      out[i] = where < 0 ? T(0) : value;
    } else {
      out[i] = begin < end ? value / static_cast<T>(end - begin) : T(0);
    }
  }
}

// Reads 4 bytes a cell and channel, 8 with the index; an atomic addition of
// 4 bytes for each value that a cell took.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* __restrict__ grad, RoiMembers m,
                    const int32_t* __restrict__ argmax, T* out) {
  MMTURBOX_EACH(i, m.cells * m.channels) {
    const int64_t v = i / m.channels, c = i % m.channels;
    if (argmax != nullptr) {
      if (argmax[i] >= 0)
        atomicAdd(out + argmax[i] * m.channels + c, grad[i]);
      continue;
    }
    const int64_t begin = m.starts[v], end = end_of(m, v);
    for (int64_t k = begin; k < end; ++k)
      atomicAdd(out + m.members[k] * m.channels + c,
                grad[i] / static_cast<T>(end - begin));
  }
}

}  // namespace

template <typename T>
void roiaware_count_cuda(const RoiCells<T>& cells, int64_t* counts,
                         Stream stream) {
  MMTURBOX_LAUNCH((count_kernel<T>), grid_of(cells.num_rois), kThreads, 0,
                  stream, cells, counts);
}

template <typename T>
void roiaware_list_cuda(const RoiCells<T>& cells, const int64_t* ends,
                        int64_t* keys, int32_t* points, Stream stream) {
  MMTURBOX_LAUNCH((list_kernel<T>), grid_of(cells.num_rois), kThreads, 0,
                  stream, cells, ends, keys, points);
}

void roiaware_index_cuda(const int64_t* keys, const int64_t* order,
                         const int32_t* points, int64_t count,
                         int64_t num_cells, int64_t* starts,
                         int32_t* members, Stream stream) {
  const int64_t most = count > num_cells ? count : num_cells + 1;
  MMTURBOX_LAUNCH(index_kernel, blocks_for(most), kThreads, 0, stream, keys,
                  order, points, count, num_cells, starts, members);
}

template <typename T>
void roiaware_pool_cuda(const T* features, const RoiMembers& members, T* out,
                        int32_t* argmax, Stream stream) {
  MMTURBOX_LAUNCH((pool_kernel<T>),
                  blocks_for(members.cells * members.channels), kThreads, 0,
                  stream, features, members, out, argmax);
}

template <typename T>
void roiaware_pool_backward_cuda(const T* grad, const RoiMembers& members,
                                 const int32_t* argmax, T* out,
                                 Stream stream) {
  MMTURBOX_LAUNCH((backward_kernel<T>),
                  blocks_for(members.cells * members.channels), kThreads, 0,
                  stream, grad, members, argmax, out);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void roiaware_count_cuda(const RoiCells<T>&, int64_t*, Stream);  \
  template void roiaware_list_cuda(const RoiCells<T>&, const int64_t*,      \
                                   int64_t*, int32_t*, Stream);             \
  template void roiaware_pool_cuda(const T*, const RoiMembers&, T*,         \
                                   int32_t*, Stream);                       \
  template void roiaware_pool_backward_cuda(const T*, const RoiMembers&,    \
                                            const int32_t*, T*, Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
