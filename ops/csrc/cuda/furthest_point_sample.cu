// CUDA kernels of furthest point sampling: a block a cloud.
#include "furthest_point_sample.h"

#include "../common/point_distance.h"
#include "each.h"

namespace mmturbox {
namespace {

constexpr int kTile = 32;
constexpr int kNoIndex = 2147483647;

// A point and how far it is; the further one wins, then the lower index.
template <typename T>
struct Furthest {
  T distance;
  int32_t index;

  __device__ void take(T d, int32_t i) {
    if (d > distance || (d == distance && i < index)) {
      distance = d;
      index = i;
    }
  }
  // The best of the warp, in every lane.
  __device__ void of_warp() {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const T d = __shfl_xor_sync(kFullWarp, distance, lanes);
      const int32_t i = __shfl_xor_sync(kFullWarp, index, lanes);
      take(d, i);
    }
  }
  // The best of the block, in every thread. `distances` and `indices` have
  // 32 places each, which must not be those of the call before.
  __device__ void of_block(T* distances, int32_t* indices) {
    of_warp();
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) {
      distances[warp] = distance;
      indices[warp] = index;
    }
    __syncthreads();
    distance = -INFINITY;
    index = kNoIndex;
    if (lane < blockDim.x / 32) take(distances[lane], indices[lane]);
    of_warp();
  }
};

// The bounding box of the finite points of a cloud, in every thread.
template <typename T>
__device__ void box_of_cloud(const T* points, int64_t n, T* low, T* high,
                             T* shared) {
  for (int axis = 0; axis < 3; ++axis) {
    low[axis] = INFINITY;
    high[axis] = -INFINITY;
  }
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (!is_point(points + i * 3)) continue;
    for (int axis = 0; axis < 3; ++axis) {
      low[axis] = min(low[axis], points[i * 3 + axis]);
      high[axis] = max(high[axis], points[i * 3 + axis]);
    }
  }
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int axis = 0; axis < 3; ++axis) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      low[axis] = min(low[axis],
                      __shfl_xor_sync(kFullWarp, low[axis], lanes));
      high[axis] = max(high[axis],
                       __shfl_xor_sync(kFullWarp, high[axis], lanes));
    }
    if (lane == 0) {
      shared[warp * 6 + axis] = low[axis];
      shared[warp * 6 + 3 + axis] = high[axis];
    }
  }
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / 32; ++w)
    for (int axis = 0; axis < 3; ++axis) {
      low[axis] = min(low[axis], shared[w * 6 + axis]);
      high[axis] = max(high[axis], shared[w * 6 + 3 + axis]);
    }
}

// Ten bits with two zeros after each.
__device__ uint32_t spread(uint32_t x) {
  x = (x | (x << 16)) & 0x030000ff;
  x = (x | (x << 8)) & 0x0300f00f;
  x = (x | (x << 4)) & 0x030c30c3;
  return (x | (x << 2)) & 0x09249249;
}

// Reads 12 bytes a point twice and writes 8: 4 MB at 129,600 points.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const T* points, int64_t clouds, int64_t n, int64_t* keys) {
  MMTURBOX_SHARED(T, shared, kThreads / 32 * 6);
  for (int64_t b = blockIdx.x; b < clouds; b += gridDim.x) {
    const T* cloud = points + b * n * 3;
    T low[3], high[3];
    box_of_cloud(cloud, n, low, high, shared);
    // Equal steps along all axes, so that tiles are about cubes.
    T side = 0;
    for (int axis = 0; axis < 3; ++axis)
      side = max(side, high[axis] - low[axis]);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      int64_t key = 1 << 30;
      if (is_point(cloud + i * 3)) {
        key = 0;
        for (int axis = 0; axis < 3; ++axis) {
          const T at = (cloud[i * 3 + axis] - low[axis]) / side * 1024;
          const uint32_t step =
              at > 0 ? static_cast<uint32_t>(at < 1023 ? at : 1023) : 0;
          key |= spread(step) << axis;
        }
      }
      keys[b * n + i] = (b << 31) | key;
    }
    __syncthreads();
  }
}

// A block's work on one cloud. Tile t belongs to warp t % warps, so that
// tiles that are near each other are worked on at once; a thread keeps the
// boxes of the slots threadIdx.x, threadIdx.x + blockDim.x, ...
template <typename T>
class CloudSampler {
 public:
  __device__ CloudSampler(const FpsScratch<T>& s, int64_t b, int64_t n)
      : slots_(s.slots),
        n_(n),
        warps_(blockDim.x / 32),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        x_(s.xyz + b * 3 * slots_ * kTile),
        y_(x_ + slots_ * kTile),
        z_(y_ + slots_ * kTile),
        distance_(s.distance + b * slots_ * kTile),
        index_(s.index + b * slots_ * kTile),
        box_(s.box + b * 6 * slots_),
        top_(s.top + b * slots_),
        first_(s.first + b * slots_) {}

  // Copy the points into tiles in the sorted order, and find the boxes.
  __device__ void fill(const T* points, const int64_t* order, int64_t start) {
    for (int64_t round = 0; round < slots_; round += blockDim.x)
      for (int from = 0; from < 32; ++from) {
        const int64_t slot = round + warp_ * 32 + from;
        const int64_t sorted = tile_of(slot) * kTile + lane_;
        const int64_t at = slot * kTile + lane_;
        Furthest<T> best{T(-1), kNoIndex};
        T p[3] = {NAN, NAN, NAN};
        if (sorted < n_) {
          best.index = static_cast<int32_t>(order[sorted] - start);
          for (int axis = 0; axis < 3; ++axis)
            p[axis] = points[best.index * int64_t{3} + axis];
          if (is_point(p)) best.distance = INFINITY;
        }
        x_[at] = p[0];
        y_[at] = p[1];
        z_[at] = p[2];
        distance_[at] = best.distance;
        index_[at] = best.index;
        write_box(slot, p, best.distance > 0);
        best.of_warp();
        if (lane_ == 0) {
          top_[slot] = best.distance;
          first_[slot] = best.index;
        }
      }
    __syncthreads();
  }
  // The best of this thread's slots.
  __device__ Furthest<T> best() const {
    Furthest<T> found{-INFINITY, kNoIndex};
    for (int64_t slot = threadIdx.x; slot < slots_; slot += blockDim.x)
      found.take(top_[slot], first_[slot]);
    return found;
  }
  // Lower the distances to those from `point`, where a tile is near enough.
  __device__ void lower(const T* point) {
    for (int64_t round = 0; round < slots_; round += blockDim.x) {
      unsigned near = __ballot_sync(
          kFullWarp, bound(round + threadIdx.x, point) <
                         top_[round + threadIdx.x]);
      for (; near != 0; near &= near - 1)
        lower_tile(round + warp_ * 32 + __ffs(near) - 1, point);
      __syncwarp();
    }
  }

 private:
  __device__ int64_t tile_of(int64_t slot) const {
    return slot / blockDim.x * blockDim.x + slot % 32 * warps_ + warp_;
  }
  __device__ void write_box(int64_t slot, const T* p, bool real) {
    for (int axis = 0; axis < 3; ++axis) {
      T low = real ? p[axis] : INFINITY, high = real ? p[axis] : -INFINITY;
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        low = min(low, __shfl_xor_sync(kFullWarp, low, lanes));
        high = max(high, __shfl_xor_sync(kFullWarp, high, lanes));
      }
      if (lane_ != 0) continue;
      box_[axis * 2 * slots_ + slot] = low;
      box_[(axis * 2 + 1) * slots_ + slot] = high;
    }
  }
  __device__ T bound(int64_t slot, const T* p) const {
    T away[3];
    for (int axis = 0; axis < 3; ++axis)
      away[axis] = outside_of(p[axis], box_[axis * 2 * slots_ + slot],
                              box_[(axis * 2 + 1) * slots_ + slot]);
    return squared_length(away[0], away[1], away[2]);
  }
  __device__ void lower_tile(int64_t slot, const T* p) {
    const int64_t at = slot * kTile + lane_;
    const T d = squared_length(x_[at] - p[0], y_[at] - p[1], z_[at] - p[2]);
    Furthest<T> best{distance_[at], index_[at]};
    if (d < best.distance) distance_[at] = best.distance = d;
    best.of_warp();
    // The lane that checks this slot keeps its top.
    if (lane_ == slot % 32) {
      top_[slot] = best.distance;
      first_[slot] = best.index;
    }
  }

  int64_t slots_, n_;
  unsigned warps_, warp_, lane_;
  T *x_, *y_, *z_, *distance_;
  int32_t* index_;
  T *box_, *top_;
  int32_t* first_;
};

// A pick tests n / 32 boxes (24 bytes each, from the first cache) and lowers
// the distances of the tiles near it, some tens of 20 bytes x 32; the block
// meets once. For 19,200 of 129,600 points: 19,200 x 4,050 tests, and 78 M
// of 20 bytes from the second cache if 4 % of the tiles are near; a plain
// scan has 2,490 M.
template <typename T>
__global__ void __launch_bounds__(1024)
    sample_kernel(const T* points, const int64_t* order, int64_t clouds,
                  int64_t n, int64_t picks, FpsScratch<T> scratch,
                  int32_t* out) {
  MMTURBOX_SHARED(T, distances, 64);
  MMTURBOX_SHARED(int32_t, indices, 64);
  for (int64_t b = blockIdx.x; b < clouds; b += gridDim.x) {
    const T* cloud = points + b * n * 3;
    CloudSampler<T> sampler(scratch, b, n);
    sampler.fill(cloud, order + b * n, b * n);
    for (int64_t j = 0; j < picks; ++j) {
      Furthest<T> best = sampler.best();
      best.of_block(distances + j % 2 * 32, indices + j % 2 * 32);
      if (threadIdx.x == 0) out[b * picks + j] = best.index;
      sampler.lower(cloud + best.index * int64_t{3});
    }
    __syncthreads();
  }
}

// Reads a row of the matrix (4 n bytes) a pick, and keeps n distances.
template <typename T>
__global__ void __launch_bounds__(1024)
    matrix_kernel(const T* matrix, int64_t clouds, int64_t n, int64_t picks,
                  T* distance, int32_t* out) {
  MMTURBOX_SHARED(T, distances, 64);
  MMTURBOX_SHARED(int32_t, indices, 64);
  for (int64_t b = blockIdx.x; b < clouds; b += gridDim.x) {
    const T* rows = matrix + b * n * n;
    T* d = distance + b * n;
    Furthest<T> best{-INFINITY, kNoIndex};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const T own = rows[i * n + i];
      d[i] = own == own ? INFINITY : -INFINITY;
      best.take(d[i], static_cast<int32_t>(i));
    }
    for (int64_t j = 0; j < picks; ++j) {
      best.of_block(distances + j % 2 * 32, indices + j % 2 * 32);
      const int64_t pick = best.index;
      if (threadIdx.x == 0) out[b * picks + j] = best.index;
      best = {-INFINITY, kNoIndex};
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const T new_distance = rows[pick * n + i];
        if (new_distance < d[i]) d[i] = new_distance;
        best.take(d[i], static_cast<int32_t>(i));
      }
    }
    __syncthreads();
  }
}

}  // namespace

int64_t fps_threads(int64_t n) {
  int64_t threads = 64;
  while (threads < 1024 && threads * 16 < n) threads *= 2;
  return threads;
}

int64_t fps_slots(int64_t n) {
  const int64_t threads = fps_threads(n);
  return ceil_div(ceil_div(n, kTile), threads) * threads;
}

template <typename T>
void fps_keys_cuda(const T* points, int64_t clouds, int64_t n, int64_t* keys,
                   Stream stream) {
  MMTURBOX_LAUNCH((keys_kernel<T>), grid_of(clouds), kThreads, 0, stream,
                  points, clouds, n, keys);
}

template <typename T>
void fps_cuda(const T* points, const int64_t* order, int64_t clouds,
              int64_t n, int64_t picks, const FpsScratch<T>& scratch,
              int32_t* out, Stream stream) {
  MMTURBOX_LAUNCH((sample_kernel<T>), grid_of(clouds),
                  static_cast<unsigned>(fps_threads(n)), 0, stream, points,
                  order, clouds, n, picks, scratch, out);
}

template <typename T>
void fps_with_dist_cuda(const T* matrix, int64_t clouds, int64_t n,
                        int64_t picks, T* distance, int32_t* out,
                        Stream stream) {
  MMTURBOX_LAUNCH((matrix_kernel<T>), grid_of(clouds),
                  static_cast<unsigned>(fps_threads(n)), 0, stream, matrix,
                  clouds, n, picks, distance, out);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void fps_keys_cuda(const T*, int64_t, int64_t, int64_t*,         \
                              Stream);                                      \
  template void fps_cuda(const T*, const int64_t*, int64_t, int64_t,        \
                         int64_t, const FpsScratch<T>&, int32_t*, Stream);  \
  template void fps_with_dist_cuda(const T*, int64_t, int64_t, int64_t, T*, \
                                   int32_t*, Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
