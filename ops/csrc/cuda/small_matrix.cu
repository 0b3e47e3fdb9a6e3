// CUDA kernels of small inverses and of affine matrices applied to points.
#include "small_matrix.h"

#include "device.h"

namespace mmturbox {
namespace {

// Matrices of a block. Their elements go through shared memory, in which a
// matrix takes 17 places so that threads do not collide on a bank.
constexpr int kMatrices = 128;
constexpr int kPlaces = 17;
constexpr int kThreads = 256;

template <typename T>
__device__ void load_tile(const T* from, int64_t count, int64_t size,
                          T* tile) {
  for (int64_t i = threadIdx.x; i < count * size; i += kMatrices)
    tile[i / size * kPlaces + i % size] = from[i];
}

// Reads and writes 64 bytes a 4 x 4 matrix of float32: 13 MB for 100,000.
// About 200 operations in float64 a matrix.
template <typename T>
__global__ void __launch_bounds__(kMatrices)
    inverse_kernel(const T* matrices, InverseKind kind, int64_t total,
                   int64_t rows, int64_t columns, T* out) {
  MMTURBOX_SHARED(T, tile, kMatrices * kPlaces);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kMatrices;
  const int64_t size = rows * columns;
  const int64_t count = min(total - first, static_cast<int64_t>(kMatrices));
  load_tile(matrices + first * size, count, size, tile);
  __syncthreads();
  if (threadIdx.x < count) {
    T* own = tile + threadIdx.x * kPlaces;
    // Loops of a fixed length, so that the arrays stay in registers.
    double a[16], inverse[16] = {};
    for (int k = 0; k < 16; ++k)
      a[k] = k < size ? static_cast<double>(own[k]) : 0;
    invert<1>(kind, columns, a, inverse);
    for (int k = 0; k < 16; ++k)
      if (k < size) own[k] = static_cast<T>(inverse[k]);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count * size; i += kMatrices)
    out[first * size + i] = tile[i / size * kPlaces + i % size];
}

// Reads 128 bytes and writes 64 a 4 x 4 matrix of float32.
template <typename T>
__global__ void __launch_bounds__(kMatrices)
    inverse_backward_kernel(const T* grad, const T* inverse, InverseKind kind,
                            int64_t total, int64_t rows, int64_t columns,
                            T* out) {
  const int64_t m =
      static_cast<int64_t>(blockIdx.x) * kMatrices + threadIdx.x;
  if (m >= total) return;
  const int64_t size = rows * columns;
  const int64_t free = kind == InverseKind::kGeneral ? size : 12;
  double g[16], a[16], result[16] = {};
  for (int k = 0; k < 16; ++k) {
    g[k] = k < free ? static_cast<double>(grad[m * size + k]) : 0;
    a[k] = k < free ? static_cast<double>(inverse[m * size + k]) : k == 15;
  }
  invert_backward<1>(kind, columns, g, a, result);
  for (int k = 0; k < 16; ++k)
    if (k < size)
      out[m * size + k] = k < free ? static_cast<T>(result[k]) : T(0);
}

// The block's sample and its first point; blocks of a sample follow each
// other.
struct Part {
  int64_t sample, first, end;

  MMTURBOX_HD explicit Part(const AffineShape& shape) {
    const int64_t parts = ceil_div(shape.points, kAffinePoints);
    sample = blockIdx.x / parts;
    const int64_t begin = blockIdx.x % parts * kAffinePoints;
    first = sample * shape.points + begin;
    end = sample * shape.points + min(begin + kAffinePoints, shape.points);
  }
};

// One thread multiplies the factors; then the block reads and writes 24 bytes
// a point: 12 MB for 250,000.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(const T* points, const T* matrices, AffineShape shape,
                 T* out) {
  MMTURBOX_SHARED(T, m, 12);
  const Part part(shape);
  if (threadIdx.x == 0) {
    const Affine product =
        compose(matrices + part.sample * shape.factors * shape.size,
                shape.factors, shape.size);
    for (int k = 0; k < 12; ++k) m[k] = static_cast<T>(product.m[k]);
  }
  __syncthreads();
  for (int64_t n = part.first + threadIdx.x; n < part.end; n += kThreads) {
    const T x = points[3 * n], y = points[3 * n + 1], z = points[3 * n + 2];
    for (int r = 0; r < 3; ++r)
      out[3 * n + r] =
          m[4 * r] * x + m[4 * r + 1] * y + m[4 * r + 2] * z + m[4 * r + 3];
  }
}

// Reads 24 and writes 12 bytes a point; 12 sums a block.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    apply_backward_kernel(const T* grad, const T* points, const T* matrices,
                          AffineShape shape, T* grad_points, double* sums) {
  MMTURBOX_SHARED(T, m, 9);
  MMTURBOX_SHARED(double, of_warps, kThreads / 32 * 12);
  const Part part(shape);
  if (threadIdx.x == 0) {
    const Affine product =
        compose(matrices + part.sample * shape.factors * shape.size,
                shape.factors, shape.size);
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 3; ++c)
        m[3 * r + c] = static_cast<T>(product.m[4 * r + c]);
  }
  __syncthreads();
  double own[12] = {};
  for (int64_t n = part.first + threadIdx.x; n < part.end; n += kThreads) {
    const T g[3] = {grad[3 * n], grad[3 * n + 1], grad[3 * n + 2]};
    if (grad_points != nullptr)
      for (int c = 0; c < 3; ++c)
        grad_points[3 * n + c] =
            m[c] * g[0] + m[3 + c] * g[1] + m[6 + c] * g[2];
    if (sums == nullptr) continue;
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 3; ++c)
        own[4 * r + c] += static_cast<double>(g[r]) * points[3 * n + c];
      own[4 * r + 3] += g[r];
    }
  }
  if (sums == nullptr) return;
  for (int k = 0; k < 12; ++k) {
    for (int lanes = 16; lanes > 0; lanes /= 2)
      own[k] += __shfl_xor_sync(kFullWarp, own[k], lanes);
    if (threadIdx.x % 32 == 0)
      of_warps[threadIdx.x / 32 * 12 + k] = own[k];
  }
  __syncthreads();
  if (threadIdx.x >= 12) return;
  double sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp)
    sum += of_warps[warp * 12 + threadIdx.x];
  sums[blockIdx.x * int64_t{12} + threadIdx.x] = sum;
}

// A block a sample: adds up its 96 bytes for each 1,024 points, then a thread
// a factor takes its part of the gradient.
template <typename T>
__global__ void __launch_bounds__(32)
    factors_kernel(const double* sums, const T* matrices, AffineShape shape,
                   T* grad_matrices) {
  MMTURBOX_SHARED(Affine, grad, 1);
  const int64_t parts = ceil_div(shape.points, kAffinePoints);
  const int64_t sample = blockIdx.x;
  if (threadIdx.x < 12) {
    double sum = 0;
    for (int64_t i = sample * parts; i < (sample + 1) * parts; ++i)
      sum += sums[i * 12 + threadIdx.x];
    grad[0].m[threadIdx.x] = sum;
  }
  __syncthreads();
  const int64_t skip = sample * shape.factors * shape.size;
  for (int64_t k = threadIdx.x; k < shape.factors; k += 32) {
    const Affine one = factor_grad(grad[0], matrices + skip, shape.factors,
                                   shape.size, k);
    for (int i = 0; i < 12; ++i)
      grad_matrices[skip + k * shape.size + i] = static_cast<T>(one.m[i]);
  }
}

}  // namespace

template <typename T>
void small_inverse_cuda(const T* matrices, InverseKind kind, int64_t count,
                        int64_t rows, int64_t columns, T* out,
                        Stream stream) {
  MMTURBOX_LAUNCH((inverse_kernel<T>), grid_of(ceil_div(count, kMatrices)),
                  kMatrices, 0, stream, matrices, kind, count, rows, columns,
                  out);
}

template <typename T>
void small_inverse_backward_cuda(const T* grad, const T* inverse,
                                 InverseKind kind, int64_t count,
                                 int64_t rows, int64_t columns, T* out,
                                 Stream stream) {
  MMTURBOX_LAUNCH((inverse_backward_kernel<T>),
                  grid_of(ceil_div(count, kMatrices)), kMatrices, 0, stream,
                  grad, inverse, kind, count, rows, columns, out);
}

template <typename T>
void apply_affine_cuda(const T* points, const T* matrices,
                       const AffineShape& shape, T* out, Stream stream) {
  MMTURBOX_LAUNCH(
      (apply_kernel<T>),
      grid_of(shape.samples * ceil_div(shape.points, kAffinePoints)),
      kThreads, 0, stream, points, matrices, shape, out);
}

template <typename T>
void apply_affine_backward_cuda(const T* grad, const T* points,
                                const T* matrices, const AffineShape& shape,
                                T* grad_points, T* grad_matrices,
                                double* sums, Stream stream) {
  MMTURBOX_LAUNCH(
      (apply_backward_kernel<T>),
      grid_of(shape.samples * ceil_div(shape.points, kAffinePoints)),
      kThreads, 0, stream, grad, points, matrices, shape, grad_points, sums);
  if (grad_matrices != nullptr)
    MMTURBOX_LAUNCH((factors_kernel<T>), grid_of(shape.samples), 32u, 0,
                    stream, sums, matrices, shape, grad_matrices);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void small_inverse_cuda(const T*, InverseKind, int64_t, int64_t, \
                                   int64_t, T*, Stream);                    \
  template void small_inverse_backward_cuda(const T*, const T*,             \
                                            InverseKind, int64_t, int64_t,  \
                                            int64_t, T*, Stream);           \
  template void apply_affine_cuda(const T*, const T*, const AffineShape&,   \
                                  T*, Stream);                              \
  template void apply_affine_backward_cuda(const T*, const T*, const T*,    \
                                           const AffineShape&, T*, T*,      \
                                           double*, Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
