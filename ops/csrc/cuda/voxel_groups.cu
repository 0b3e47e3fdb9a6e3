// CUDA kernels that find the points of each voxel from sorted keys. Bytes
// are those of 300,000 points of five float32 values in 135,000 voxels; the
// sort of the keys (ATen's, by radix) moves about 30 MB more.
#include "voxel_groups.h"

#include "each.h"

namespace mmturbox {
namespace {

// Reads 6.0 MB, writes 2.4 MB.
template <typename T>
__global__ void point_keys_kernel(const T* points, int64_t number,
                                  int64_t channels, VoxelGrid<T> grid,
                                  int64_t first_key, int64_t* keys) {
  MMTURBOX_EACH(i, number) {
    const int64_t cell = grid.cell(points + i * channels);
    keys[i] = cell < 0 ? kNoKey : first_key + cell;
  }
}

// Reads 4.8 MB of int32 rows. One atomic a block and column, on integers.
template <typename Index>
__global__ void row_extents_kernel(const Index* coors, int64_t rows,
                                   int64_t width, int64_t* extent) {
  MMTURBOX_SHARED(int64_t, largest, kThreads);
  for (int64_t k = 0; k < width; ++k) {
    int64_t mine = 1;
    MMTURBOX_EACH(i, rows) {
      const Index* row = coors + i * width;
      bool valid = true;
      for (int64_t l = 0; l < width; ++l) valid = valid && row[l] >= 0;
      if (valid && row[k] + int64_t{1} > mine) mine = row[k] + int64_t{1};
    }
    largest[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half &&
          largest[threadIdx.x + half] > largest[threadIdx.x])
        largest[threadIdx.x] = largest[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0)
      atomicMax(reinterpret_cast<long long*>(extent) + k,
                static_cast<long long>(largest[0]));
    __syncthreads();
  }
}

// Work for one thread.
__global__ void span_kernel(const int64_t* extent, int64_t width,
                            int64_t* span) {
  if (threadIdx.x != 0) return;
  int64_t product = 1;
  for (int64_t k = 0; k < width && product > 0; ++k)
    product = product > INT64_MAX / extent[k] ? -1 : product * extent[k];
  *span = product;
}

// Reads 4.8 MB, writes 2.4 MB. Unsigned: keys mean nothing if they overflow.
template <typename Index>
__global__ void row_keys_kernel(const Index* coors, int64_t rows,
                                int64_t width, const int64_t* extent,
                                int64_t* keys) {
  MMTURBOX_EACH(i, rows) {
    const Index* row = coors + i * width;
    bool valid = true;
    uint64_t key = 0;
    for (int64_t k = 0; k < width; ++k) {
      valid = valid && row[k] >= 0;
      key = key * static_cast<uint64_t>(extent[k]) +
            static_cast<uint64_t>(row[k]);
    }
    keys[i] = valid ? static_cast<int64_t>(key) : kNoKey;
  }
}

// Reads 2.4 MB (neighbours from the cache), writes 1.2 MB.
__global__ void segment_heads_kernel(const int64_t* keys, int64_t number,
                                     int32_t* head) {
  MMTURBOX_EACH(j, number) {
    head[j] = keys[j] != kNoKey && (j == 0 || keys[j] != keys[j - 1]);
  }
}

// Reads 4.8 MB, writes 1.1 MB.
__global__ void segment_starts_kernel(const int64_t* keys,
                                      const int64_t* rank, int64_t number,
                                      int64_t* start) {
  MMTURBOX_EACH(j, number) {
    if (keys[j] == kNoKey) continue;
    if (j == 0 || keys[j] != keys[j - 1]) start[rank[j] - 1] = j;
    if (j + 1 == number || keys[j + 1] == kNoKey) start[rank[j]] = j + 1;
  }
}

// Reads 7.2 MB, writes 1.2 MB, scattered.
__global__ void group_map_kernel(const int64_t* keys, const int64_t* order,
                                 const int64_t* rank, int64_t number,
                                 int32_t* map) {
  MMTURBOX_EACH(j, number) {
    map[order[j]] =
        keys[j] == kNoKey ? -1 : static_cast<int32_t>(rank[j] - 1);
  }
}

// Reads 1.1 MB, writes 0.5 MB.
__global__ void group_counts_kernel(const int64_t* start, int64_t voxels,
                                    int32_t* count) {
  MMTURBOX_EACH(m, voxels) {
    count[m] = static_cast<int32_t>(start[m + 1] - start[m]);
  }
}

// Reads 2.2 MB, writes 2.2 MB.
template <typename T>
__global__ void key_coors_kernel(const int64_t* keys, const int64_t* start,
                                 int64_t voxels, VoxelGrid<T> grid,
                                 int32_t* coors) {
  const int64_t cells = grid.total();
  MMTURBOX_EACH(m, voxels) {
    const int64_t key = keys[start[m]];
    coors[m * 4] = static_cast<int32_t>(key / cells);
    grid.coors(key % cells, coors + m * 4 + 1);
  }
}

// Reads 4.3 MB (rows scattered), writes 2.2 MB.
template <typename Index>
__global__ void first_rows_kernel(const Index* coors, const int64_t* order,
                                  const int64_t* start, int64_t voxels,
                                  int64_t width, Index* out) {
  MMTURBOX_EACH(m, voxels) {
    const Index* row = coors + order[start[m]] * width;
    for (int64_t k = 0; k < width; ++k) out[m * width + k] = row[k];
  }
}

}  // namespace

template <typename T>
void point_keys_cuda(const T* points, int64_t number, int64_t channels,
                     VoxelGrid<T> grid, int64_t first_key, int64_t* keys,
                     Stream stream) {
  MMTURBOX_LAUNCH((point_keys_kernel<T>), blocks_for(number), kThreads, 0,
                  stream, points, number, channels, grid, first_key, keys);
}

template <typename Index>
void row_extents_cuda(const Index* coors, int64_t rows, int64_t width,
                      int64_t* extent, Stream stream) {
  // Few blocks, so that few atomics meet.
  const unsigned blocks = blocks_for(ceil_div(rows, 4));
  MMTURBOX_LAUNCH((row_extents_kernel<Index>), blocks, kThreads, 0, stream,
                  coors, rows, width, extent);
}

template <typename Index>
void row_keys_cuda(const Index* coors, int64_t rows, int64_t width,
                   const int64_t* extent, int64_t* keys, int64_t* span,
                   Stream stream) {
  MMTURBOX_LAUNCH(span_kernel, 1, 32, 0, stream, extent, width, span);
  MMTURBOX_LAUNCH((row_keys_kernel<Index>), blocks_for(rows), kThreads, 0,
                  stream, coors, rows, width, extent, keys);
}

void segment_heads_cuda(const int64_t* keys, int64_t number, int32_t* head,
                        Stream stream) {
  MMTURBOX_LAUNCH(segment_heads_kernel, blocks_for(number), kThreads, 0,
                  stream, keys, number, head);
}

void segment_starts_cuda(const int64_t* keys, const int64_t* rank,
                         int64_t number, int64_t* start, Stream stream) {
  MMTURBOX_LAUNCH(segment_starts_kernel, blocks_for(number), kThreads, 0,
                  stream, keys, rank, number, start);
}

void group_map_cuda(const int64_t* keys, const int64_t* order,
                    const int64_t* rank, int64_t number, int32_t* map,
                    Stream stream) {
  MMTURBOX_LAUNCH(group_map_kernel, blocks_for(number), kThreads, 0, stream,
                  keys, order, rank, number, map);
}

void group_counts_cuda(const int64_t* start, int64_t voxels, int32_t* count,
                       Stream stream) {
  MMTURBOX_LAUNCH(group_counts_kernel, blocks_for(voxels), kThreads, 0,
                  stream, start, voxels, count);
}

template <typename T>
void key_coors_cuda(const int64_t* keys, const int64_t* start,
                    int64_t voxels, VoxelGrid<T> grid, int32_t* coors,
                    Stream stream) {
  MMTURBOX_LAUNCH((key_coors_kernel<T>), blocks_for(voxels), kThreads, 0,
                  stream, keys, start, voxels, grid, coors);
}

template <typename Index>
void first_rows_cuda(const Index* coors, const int64_t* order,
                     const int64_t* start, int64_t voxels, int64_t width,
                     Index* out, Stream stream) {
  MMTURBOX_LAUNCH((first_rows_kernel<Index>), blocks_for(voxels), kThreads,
                  0, stream, coors, order, start, voxels, width, out);
}

#define MMTURBOX_INSTANTIATE(T)                                             \
  template void point_keys_cuda(const T*, int64_t, int64_t, VoxelGrid<T>,   \
                                int64_t, int64_t*, Stream);                 \
  template void key_coors_cuda(const int64_t*, const int64_t*, int64_t,     \
                               VoxelGrid<T>, int32_t*, Stream);
MMTURBOX_INSTANTIATE(float)
MMTURBOX_INSTANTIATE(double)
#undef MMTURBOX_INSTANTIATE

#define MMTURBOX_INSTANTIATE(Index)                                         \
  template void row_extents_cuda(const Index*, int64_t, int64_t, int64_t*,  \
                                 Stream);                                   \
  template void row_keys_cuda(const Index*, int64_t, int64_t,               \
                              const int64_t*, int64_t*, int64_t*, Stream);  \
  template void first_rows_cuda(const Index*, const int64_t*,               \
                                const int64_t*, int64_t, int64_t, Index*,   \
                                Stream);
MMTURBOX_INSTANTIATE(int32_t)
MMTURBOX_INSTANTIATE(int64_t)
#undef MMTURBOX_INSTANTIATE

}  // namespace mmturbox
