// CUDA kernels of gathering and grouping. Gradients are summed by atomics,
// in an order that varies.
#include "group_points.h"

#include "../common/stacked_rows.h"
#include "each.h"

namespace mmturbox {
namespace {

constexpr int64_t kMostRows = 65535;  // of a grid's second dimension

dim3 grid_for(int64_t rows, int64_t picks) {
  return dim3(blocks_for(picks),
              static_cast<unsigned>(rows < kMostRows ? rows : kMostRows));
}

// Reads and writes 4 bytes an output and reads its index once for all
// channels: 67 MB for 2 x 128 channels x 4,096 x 16 (14 us at 4.8 TB/s); the
// reads are scattered over n values of a row, which a cache holds.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* __restrict__ features,
                  const int32_t* __restrict__ index, int64_t rows,
                  int64_t channels, int64_t n, int64_t picks, T* out) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int32_t* own = index + row / channels * picks;
    MMTURBOX_EACH(i, picks) {
      const int64_t at = own[i];
      out[row * picks + i] =
          at >= 0 && at < n ? features[row * n + at] : T(0);
    }
  }
}

// As gather_kernel, with an atomic addition of 4 bytes an output.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_backward_kernel(const T* __restrict__ grad,
                           const int32_t* __restrict__ index, int64_t rows,
                           int64_t channels, int64_t n, int64_t picks,
                           T* out) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int32_t* own = index + row / channels * picks;
    MMTURBOX_EACH(i, picks) {
      const int64_t at = own[i];
      if (at >= 0 && at < n)
        atomicAdd(out + row * n + at, grad[row * picks + i]);
    }
  }
}

// The row of value `i` (channel first) of a group, or -1.
__device__ int64_t row_of(const Stacked& s, const RowRange& range,
                          int64_t group, int64_t i) {
  const int64_t at = s.index[group * s.per_group + i % s.per_group];
  return at >= 0 && range.begin + at < range.end ? range.begin + at : -1;
}

// A block a group. Reads and writes 4 bytes an output: 67 MB for 8,192 groups
// of 16 x 64 channels; a row is read whole, a channel after the other.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    stacked_kernel(const T* __restrict__ features, Stacked s, T* out) {
  const int64_t size = s.channels * s.per_group;
  for (int64_t group = blockIdx.x; group < s.groups; group += gridDim.x) {
    const RowRange range = rows_of_item(s.counts, s.group_counts, s.samples,
                                        s.rows, group);
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const int64_t row = row_of(s, range, group, i);
      out[group * size + i] =
          row < 0 ? T(0) : features[row * s.channels + i / s.per_group];
    }
  }
}

// As stacked_kernel, with an atomic addition of 4 bytes a value.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    stacked_backward_kernel(const T* __restrict__ grad, Stacked s, T* out) {
  const int64_t size = s.channels * s.per_group;
  for (int64_t group = blockIdx.x; group < s.groups; group += gridDim.x) {
    const RowRange range = rows_of_item(s.counts, s.group_counts, s.samples,
                                        s.rows, group);
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const int64_t row = row_of(s, range, group, i);
      if (row >= 0)
        atomicAdd(out + row * s.channels + i / s.per_group,
                  grad[group * size + i]);
    }
  }
}

template <typename T>
void gather(const void* features, const int32_t* index, int64_t rows,
            int64_t channels, int64_t n, int64_t picks, void* out,
            Stream stream) {
  MMTURBOX_LAUNCH((gather_kernel<T>), grid_for(rows, picks), kThreads, 0,
                  stream, static_cast<const T*>(features), index, rows,
                  channels, n, picks, static_cast<T*>(out));
}

template <typename T>
void group(const void* features, const Stacked& stacked, void* out,
           Stream stream) {
  MMTURBOX_LAUNCH((stacked_kernel<T>), grid_of(stacked.groups), kThreads, 0,
                  stream, static_cast<const T*>(features), stacked,
                  static_cast<T*>(out));
}

}  // namespace

void gather_points_cuda(const void* features, const int32_t* index,
                        int64_t rows, int64_t channels, int64_t n,
                        int64_t picks, int64_t width, void* out,
                        Stream stream) {
  const auto copy = width == 2   ? &gather<uint16_t>
                    : width == 4 ? &gather<uint32_t>
                                 : &gather<uint64_t>;
  copy(features, index, rows, channels, n, picks, out, stream);
}

void group_points_stacked_cuda(const void* features, const Stacked& stacked,
                               int64_t width, void* out, Stream stream) {
  const auto copy = width == 2   ? &group<uint16_t>
                    : width == 4 ? &group<uint32_t>
                                 : &group<uint64_t>;
  copy(features, stacked, out, stream);
}

template <typename T>
void gather_points_backward_cuda(const T* grad, const int32_t* index,
                                 int64_t rows, int64_t channels, int64_t n,
                                 int64_t picks, T* out, Stream stream) {
  MMTURBOX_LAUNCH((gather_backward_kernel<T>), grid_for(rows, picks),
                  kThreads, 0, stream, grad, index, rows, channels, n, picks,
                  out);
}

template <typename T>
void group_points_stacked_backward_cuda(const T* grad, const Stacked& stacked,
                                        T* out, Stream stream) {
  MMTURBOX_LAUNCH((stacked_backward_kernel<T>), grid_of(stacked.groups),
                  kThreads, 0, stream, grad, stacked, out);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void gather_points_backward_cuda(const T*, const int32_t*,       \
                                            int64_t, int64_t, int64_t,      \
                                            int64_t, T*, Stream);           \
  template void group_points_stacked_backward_cuda(const T*,                \
                                                   const Stacked&, T*,      \
                                                   Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
