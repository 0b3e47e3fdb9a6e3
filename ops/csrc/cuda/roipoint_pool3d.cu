// CUDA kernels of RoI-point pooling.
#include "roipoint_pool3d.h"

#include "../common/roi_pool_box.h"
#include "block_rank.h"

namespace mmturbox {
namespace {

// A block a box. It tests points in their order until it has enough: up to
// boxes x points tests of 20 operations, 2.1 M for 128 boxes x 16,384
// points, and 12 bytes each from the second cache.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const T* points, const T* boxes, RoiPointShape shape,
                  int32_t* index, int32_t* empty) {
  MMTURBOX_SHARED(int, shared, 2 * kThreads / 32);
  const int64_t all = shape.clouds * shape.boxes;
  for (int64_t m = blockIdx.x; m < all; m += gridDim.x) {
    const PoolBox<T> box(boxes + m * 7);
    const T* cloud = points + m / shape.boxes * shape.points * 3;
    int32_t* own = index + m * shape.samples;
    int64_t found = 0;
    int turn = 0;
    // An empty box is told from a full one also where no sample is asked for.
    const int64_t enough = shape.samples > 0 ? shape.samples : 1;
    for (int64_t start = 0; start < shape.points && found < enough;
         start += kThreads, turn ^= 1) {
      const int64_t i = start + threadIdx.x;
      const bool keep =
          i < shape.points &&
          box.holds(cloud[i * 3], cloud[i * 3 + 1], cloud[i * 3 + 2]);
      const BlockRank rank = block_rank(keep, shared + turn * kThreads / 32);
      if (keep && found + rank.before < shape.samples)
        own[found + rank.before] = static_cast<int32_t>(i);
      found += rank.total;
    }
    __syncthreads();
    if (threadIdx.x == 0) empty[m] = found == 0;
    for (int64_t s = found + threadIdx.x; s < shape.samples; s += kThreads)
      own[s] = found == 0 ? -1 : own[s % found];
    __syncthreads();
  }
}

// Reads and writes 4 (3 + C) bytes a sample: 69 MB for 128 boxes x 512
// samples x 131 values (14 us at 4.8 TB/s).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const T* __restrict__ points, const T* __restrict__ features,
                const int32_t* __restrict__ index, RoiPointShape shape,
                int64_t channels, T* out) {
  const int64_t width = 3 + channels, per_cloud = shape.boxes * shape.samples;
  MMTURBOX_EACH(i, shape.clouds * per_cloud * width) {
    const int64_t row = i / width, c = i % width;
    const int64_t at = row / per_cloud * shape.points + index[row];
    if (index[row] < 0)
      out[i] = T(0);
    else
      out[i] = c < 3 ? points[at * 3 + c] : features[at * channels + c - 3];
  }
}

template <typename T>
void copy(const void* points, const void* features, const int32_t* index,
          const RoiPointShape& shape, int64_t channels, void* out,
          Stream stream) {
  const int64_t count =
      shape.clouds * shape.boxes * shape.samples * (3 + channels);
  MMTURBOX_LAUNCH((copy_kernel<T>), blocks_for(count), kThreads, 0, stream,
                  static_cast<const T*>(points),
                  static_cast<const T*>(features), index, shape, channels,
                  static_cast<T*>(out));
}

}  // namespace

template <typename T>
void roipoint_choose_cuda(const T* points, const T* boxes,
                          const RoiPointShape& shape, int32_t* index,
                          int32_t* empty, Stream stream) {
  MMTURBOX_LAUNCH((choose_kernel<T>), grid_of(shape.clouds * shape.boxes),
                  kThreads, 0, stream, points, boxes, shape, index, empty);
}

void roipoint_copy_cuda(const void* points, const void* features,
                        const int32_t* index, const RoiPointShape& shape,
                        int64_t channels, int64_t width, void* out,
                        Stream stream) {
  const auto copy_rows = width == 2   ? &copy<uint16_t>
                         : width == 4 ? &copy<uint32_t>
                                      : &copy<uint64_t>;
  copy_rows(points, features, index, shape, channels, out, stream);
}

template void roipoint_choose_cuda(const float*, const float*,
                                   const RoiPointShape&, int32_t*, int32_t*,
                                   Stream);
template void roipoint_choose_cuda(const double*, const double*,
                                   const RoiPointShape&, int32_t*, int32_t*,
                                   Stream);

}  // namespace mmturbox
