// CUDA kernels of sparse max pooling and of the dense form. A thread owns one
// value of the result. Bytes are those of 59,000 rows of 64 float32 channels
// pooled from 144,000, 27 taps, and of the dense form of BEVFusion's last
// level: 15,000 rows of 128 channels in 2 x 180 x 180 cells.
#include "sparse_pool.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "../common/sparse_pool.h"
#include "each.h"

namespace mmturbox {
namespace {

using Half = torch::headeronly::Half;
using BFloat16 = torch::headeronly::BFloat16;

// The type that values are compared and summed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

// Reads 124 MB of rows (480,000 pairs) and 6 MB, writes 15 MB.
template <typename T>
__global__ void pool_kernel(const T* rows, int64_t channels,
                            const int32_t* table, int64_t taps,
                            int64_t outputs, const int32_t* chain, T* out) {
  using W = typename Wide<T>::type;
  MMTURBOX_EACH(e, outputs * channels) {
    const int64_t m = e / channels, c = e % channels;
    W most = 0;
    bool any = false;
    for (int64_t k = 0; k < taps; ++k)
      for (int64_t r = table[k * outputs + m]; r >= 0;
           r = chain ? chain[r] : -1) {
        const W value = static_cast<W>(rows[r * channels + c]);
        if (!any || pool_takes(value, most)) most = value;
        any = true;
      }
    out[e] = static_cast<T>(most);
  }
}

// Reads 290 MB (twice the pairs, and the rows) and 16 MB, writes 37 MB.
template <typename T>
__global__ void pool_grad_kernel(const T* rows, const T* output,
                                 const T* grad, int64_t channels,
                                 const int32_t* reached, int64_t taps,
                                 int64_t inputs, T* out) {
  using W = typename Wide<T>::type;
  MMTURBOX_EACH(e, inputs * channels) {
    const int64_t n = e / channels, c = e % channels;
    const W value = static_cast<W>(rows[e]);
    W sum = 0;
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t m = reached[k * inputs + n];
      if (m >= 0 && static_cast<W>(output[m * channels + c]) == value)
        sum += static_cast<W>(grad[m * channels + c]);
    }
    out[e] = static_cast<T>(sum);
  }
}

// Writes 0.3 MB.
__global__ void no_owner_kernel(int64_t cells, int32_t* owner) {
  MMTURBOX_EACH(i, cells) { owner[i] = -1; }
}

// Reads 0.2 MB. As an unsigned number -1 is the largest.
__global__ void owner_kernel(SparseGrid grid, const int32_t* coords,
                             int64_t rows, int32_t* owner) {
  MMTURBOX_EACH(n, rows) {
    const int64_t key = grid.key_of_row(coords + n * (grid.axes + 1));
    if (key >= 0)
      atomicMin(reinterpret_cast<unsigned*>(owner) + key,
                static_cast<unsigned>(n));
  }
}

// Reads 8 MB, writes 33 MB.
template <typename T>
__global__ void dense_kernel(const T* rows, const int32_t* owner,
                             int64_t channels, int64_t cells, int64_t count,
                             T* out) {
  MMTURBOX_EACH(e, count) {
    const int64_t plane = e / cells, b = plane / channels;
    const int64_t row = owner[b * cells + e % cells];
    out[e] = row < 0 ? static_cast<T>(0.f)
                     : rows[row * channels + plane % channels];
  }
}

// Reads 8 MB in lines of 32 bytes, writes 8 MB.
template <typename T>
__global__ void from_dense_kernel(SparseGrid grid, const T* dense,
                                  const int32_t* coords,
                                  const int32_t* owner, int64_t rows,
                                  int64_t channels, int64_t cells, T* out) {
  MMTURBOX_EACH(e, rows * channels) {
    const int64_t n = e % rows, c = e / rows;
    const int64_t key = grid.key_of_row(coords + n * (grid.axes + 1));
    const bool mine = key >= 0 && owner[key] == n;
    out[n * channels + c] =
        mine ? dense[(key / cells * channels + c) * cells + key % cells]
             : static_cast<T>(0.f);
  }
}

}  // namespace

template <typename T>
void sparse_max_pool_cuda(const T* rows, int64_t channels,
                          const int32_t* table, int64_t taps,
                          int64_t outputs, const int32_t* chain, T* out,
                          Stream stream) {
  MMTURBOX_LAUNCH(pool_kernel<T>, blocks_for(outputs * channels), kThreads, 0,
                  stream, rows, channels, table, taps, outputs, chain, out);
}

template <typename T>
void sparse_max_pool_grad_cuda(const T* rows, const T* output, const T* grad,
                               int64_t channels, const int32_t* reached,
                               int64_t taps, int64_t inputs, T* out,
                               Stream stream) {
  MMTURBOX_LAUNCH(pool_grad_kernel<T>, blocks_for(inputs * channels),
                  kThreads, 0, stream, rows, output, grad, channels, reached,
                  taps, inputs, out);
}

void sparse_owner_cuda(const SparseGrid& grid, const int32_t* coords,
                       int64_t rows, int64_t cells, int32_t* owner,
                       Stream stream) {
  MMTURBOX_LAUNCH(no_owner_kernel, blocks_for(cells), kThreads, 0, stream,
                  cells, owner);
  MMTURBOX_LAUNCH(owner_kernel, blocks_for(rows), kThreads, 0, stream, grid,
                  coords, rows, owner);
}

template <typename T>
void sparse_to_dense_cuda(const T* rows, const int32_t* owner, int64_t batch,
                          int64_t channels, int64_t cells, T* out,
                          Stream stream) {
  const int64_t count = batch * channels * cells;
  MMTURBOX_LAUNCH(dense_kernel<T>, blocks_for(count), kThreads, 0, stream,
                  rows, owner, channels, cells, count, out);
}

template <typename T>
void sparse_from_dense_cuda(const SparseGrid& grid, const T* dense,
                            const int32_t* coords, const int32_t* owner,
                            int64_t rows, int64_t channels, int64_t cells,
                            T* out, Stream stream) {
  MMTURBOX_LAUNCH(from_dense_kernel<T>, blocks_for(rows * channels), kThreads,
                  0, stream, grid, dense, coords, owner, rows, channels,
                  cells, out);
}

#define MMTURBOX_FOR_TYPE(T)                                                  \
  template void sparse_max_pool_cuda(const T*, int64_t, const int32_t*,       \
                                     int64_t, int64_t, const int32_t*, T*,    \
                                     Stream);                                 \
  template void sparse_max_pool_grad_cuda(const T*, const T*, const T*,       \
                                          int64_t, const int32_t*, int64_t,   \
                                          int64_t, T*, Stream);               \
  template void sparse_to_dense_cuda(const T*, const int32_t*, int64_t,       \
                                     int64_t, int64_t, T*, Stream);           \
  template void sparse_from_dense_cuda(const SparseGrid&, const T*,           \
                                       const int32_t*, const int32_t*,        \
                                       int64_t, int64_t, int64_t, T*, Stream);
MMTURBOX_FOR_TYPE(float)
MMTURBOX_FOR_TYPE(double)
MMTURBOX_FOR_TYPE(Half)
MMTURBOX_FOR_TYPE(BFloat16)

}  // namespace mmturbox
