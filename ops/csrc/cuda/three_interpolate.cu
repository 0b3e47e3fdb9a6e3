// CUDA kernels of interpolation from three points. Gradients are summed by
// atomics, in an order that varies.
#include "three_interpolate.h"

#include "each.h"

namespace mmturbox {
namespace {

constexpr int64_t kMostRows = 65535;  // of a grid's second dimension

dim3 grid_for(int64_t rows, int64_t n) {
  return dim3(blocks_for(n),
              static_cast<unsigned>(rows < kMostRows ? rows : kMostRows));
}

// Writes 4 bytes an output: 34 MB for 2 x 256 channels x 16,384 points (7 us
// at 4.8 TB/s). It reads three features of a row, which a cache holds, and 24
// bytes of indices and weights that all channels share.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    interpolate_kernel(const T* __restrict__ features,
                       const int32_t* __restrict__ index,
                       const T* __restrict__ weight, int64_t rows,
                       int64_t channels, int64_t m, int64_t n, T* out) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    MMTURBOX_EACH(i, n) {
      const int64_t at = (row / channels * n + i) * 3;
      T part[3];
      for (int k = 0; k < 3; ++k) {
        const int64_t from = index[at + k];
        part[k] = weight[at + k] *
                  (from >= 0 && from < m ? features[row * m + from] : T(0));
      }
      out[row * n + i] = part[0] + part[1] + part[2];
    }
}

// Reads what interpolate_kernel writes, with three atomic additions of 4
// bytes a value.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* __restrict__ grad,
                    const int32_t* __restrict__ index,
                    const T* __restrict__ weight, int64_t rows,
                    int64_t channels, int64_t m, int64_t n, T* out) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    MMTURBOX_EACH(i, n) {
      const int64_t at = (row / channels * n + i) * 3;
      for (int k = 0; k < 3; ++k) {
        const int64_t to = index[at + k];
        if (to >= 0 && to < m)
          atomicAdd(out + row * m + to, grad[row * n + i] * weight[at + k]);
      }
    }
}

}  // namespace

template <typename T>
void three_interpolate_cuda(const T* features, const int32_t* index,
                            const T* weight, int64_t rows, int64_t channels,
                            int64_t m, int64_t n, T* out, Stream stream) {
  MMTURBOX_LAUNCH((interpolate_kernel<T>), grid_for(rows, n), kThreads, 0,
                  stream, features, index, weight, rows, channels, m, n, out);
}

template <typename T>
void three_interpolate_backward_cuda(const T* grad, const int32_t* index,
                                     const T* weight, int64_t rows,
                                     int64_t channels, int64_t m, int64_t n,
                                     T* out, Stream stream) {
  MMTURBOX_LAUNCH((backward_kernel<T>), grid_for(rows, n), kThreads, 0,
                  stream, grad, index, weight, rows, channels, m, n, out);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void three_interpolate_cuda(const T*, const int32_t*, const T*,  \
                                       int64_t, int64_t, int64_t, int64_t,  \
                                       T*, Stream);                         \
  template void three_interpolate_backward_cuda(                            \
      const T*, const int32_t*, const T*, int64_t, int64_t, int64_t,        \
      int64_t, T*, Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
