// CUDA kernels of Gaussian splatting. Forward a thread owns a voxel, backward
// a block owns a Gaussian: no atomics, no list of pairs, no host read.
#include "gaussian_splat.h"

#include "device.h"

namespace mmturbox {
namespace {

constexpr int kEdge = 8;  // of a tile of voxels
constexpr int kTileThreads = kEdge * kEdge * kEdge;
constexpr int kTileWarps = kTileThreads / 32;
constexpr int kStage = 32;  // Gaussians in shared memory at a time
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = static_cast<int>(kSplatColumns);
constexpr int kMoments = 9;

// Writes 24 bytes for each Gaussian.
template <typename T>
__global__ void boxes_kernel(const T* means, const int32_t* radii,
                             int64_t count, SplatGrid grid, SplatBox* boxes) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t g = static_cast<int64_t>(blockIdx.x) * blockDim.x +
                   threadIdx.x;
       g < count; g += step)
    boxes[g] = splat_box(means + g * 3, radii[g], grid);
}

// A block sums kColumns columns for a tile of voxels. Its threads test 512
// Gaussians at a time against the tile, list those that reach it in ascending
// order, and take them through shared memory. At 25,600 Gaussians and
// 200 x 200 x 16 voxels of 20 sums it must write 51 MB; the test reads 770 MB
// of boxes through the second cache (130 us at 6 TB/s), and 120 million pairs
// with some 60 operations each take 110 us at 67 TFLOP/s.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    splat_kernel(const T* __restrict__ means, const T* __restrict__ table,
                 const T* __restrict__ precisions,
                 const SplatBox* __restrict__ boxes, SplatShape shape,
                 SplatGrid grid, T* __restrict__ sums,
                 T* __restrict__ rest) {
  MMTURBOX_SHARED(int32_t, list, kTileThreads);
  MMTURBOX_SHARED(int32_t, counts, kTileWarps);
  MMTURBOX_SHARED(SplatBox, box, kStage);
  MMTURBOX_SHARED(T, place, kStage * 9);  // mean, precision
  MMTURBOX_SHARED(T, rows, kStage * kColumns);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int64_t N = shape.gaussians, K = shape.columns;
  const int64_t tiles_z = ceil_div(grid.cells[2], kEdge);
  const int64_t tiles_y = ceil_div(grid.cells[1], kEdge);
  const int64_t tiles = ceil_div(grid.cells[0], kEdge) * tiles_y * tiles_z;
  const int64_t tile = blockIdx.x % tiles;
  const int64_t chunks = splat_chunks(K);
  const int64_t chunk = blockIdx.x / tiles % chunks;
  const int64_t batch = blockIdx.x / tiles / chunks;
  const int64_t c0 = chunk * kColumns;
  const int64_t first[3] = {tile / tiles_z / tiles_y * kEdge,
                            tile / tiles_z % tiles_y * kEdge,
                            tile % tiles_z * kEdge};
  const int64_t x = first[0] + thread / (kEdge * kEdge);
  const int64_t y = first[1] + thread / kEdge % kEdge;
  const int64_t z = first[2] + thread % kEdge;
  const T px = voxel_centre<T>(x, 0, grid), py = voxel_centre<T>(y, 1, grid),
          pz = voxel_centre<T>(z, 2, grid);
  T sum[kColumns], product = 1;
  for (int k = 0; k < kColumns; ++k) sum[k] = 0;

  for (int64_t start = 0; start < N; start += kTileThreads) {
    bool near = start + thread < N;
    if (near) {
      const SplatBox own = boxes[batch * N + start + thread];
      near = own.high[0] >= own.low[0];
      for (int k = 0; k < 3; ++k)
        near = near && own.low[k] < first[k] + kEdge &&
               own.high[k] >= first[k];
    }
    const unsigned votes = __ballot_sync(kFullWarp, near);
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < kTileWarps; ++w) {
      if (w == warp) before = total;
      total += counts[w];
    }
    if (near)
      list[before + __popc(votes & ((1u << lane) - 1))] =
          static_cast<int32_t>(start + thread);
    __syncthreads();
    for (int s0 = 0; s0 < total; s0 += kStage) {
      const int staged = total - s0 < kStage ? total - s0 : kStage;
      for (int i = thread; i < staged * kColumns; i += kTileThreads) {
        const int64_t g = batch * N + list[s0 + i / kColumns];
        const int64_t c = c0 + i % kColumns;
        rows[i] = c < K ? table[g * K + c] : T(0);
      }
      for (int i = thread; i < staged * 9; i += kTileThreads) {
        const int64_t g = batch * N + list[s0 + i / 9];
        const int k = i % 9;
        place[i] = k < 3 ? means[g * 3 + k] : precisions[g * 6 + k - 3];
      }
      if (thread < staged) box[thread] = boxes[batch * N + list[s0 + thread]];
      __syncthreads();
      for (int i = 0; i < staged; ++i) {
        const SplatBox& b = box[i];
        if (x < b.low[0] || x > b.high[0] || y < b.low[1] || y > b.high[1] ||
            z < b.low[2] || z > b.high[2])
          continue;
        const T* m = place + i * 9;
        const T e = std::exp(
            -splat_distance(m + 3, m[0] - px, m[1] - py, m[2] - pz));
        const T* row = rows + i * kColumns;
        for (int k = 0; k < kColumns; ++k) sum[k] += e * row[k];
        product *= 1 - e;
      }
      __syncthreads();
    }
  }
  if (x >= grid.cells[0] || y >= grid.cells[1] || z >= grid.cells[2]) return;
  const int64_t voxel = batch * grid.voxels() +
                        (x * grid.cells[1] + y) * grid.cells[2] + z;
  for (int k = 0; k < kColumns && c0 + k < K; ++k)
    sums[voxel * K + c0 + k] = sum[k];
  if (rest != nullptr && chunk == 0) rest[voxel] = product;
}

// A block owns a Gaussian and kColumns columns of the table; its threads walk
// the voxels that it reaches and reduce in the block before the one write. A
// Gaussian that reaches all of 200 x 200 x 16 voxels makes 2,500 rounds. At
// 120 million pairs of 20 columns it reads 9.6 GB of gradients through the
// caches (1.6 ms at 6 TB/s); 51 MB of them are in device memory.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const T* __restrict__ grad,
                     const T* __restrict__ grad_rest,
                     const T* __restrict__ rest, const T* __restrict__ means,
                     const T* __restrict__ table,
                     const T* __restrict__ precisions,
                     const SplatBox* __restrict__ boxes, SplatShape shape,
                     SplatGrid grid, T* __restrict__ grad_table,
                     T* __restrict__ moments) {
  MMTURBOX_SHARED(T, row, kColumns);
  MMTURBOX_SHARED(T, partial, kWarps * (kColumns + kMoments));
  const int thread = threadIdx.x;
  const int64_t K = shape.columns, count = shape.batch * shape.gaussians;
  const int64_t g = blockIdx.x % count, chunk = blockIdx.x / count;
  const int64_t c0 = chunk * kColumns;
  if (thread < kColumns)
    row[thread] = c0 + thread < K ? table[g * K + c0 + thread] : T(0);
  __syncthreads();
  const SplatBox box = boxes[g];
  const T* p = precisions + g * 6;
  const T* mean = means + g * 3;
  // Columns' own sums, then the moments.
  T sum[kColumns + kMoments];
  for (int k = 0; k < kColumns + kMoments; ++k) sum[k] = 0;
  const int64_t width = box.high[1] - box.low[1] + 1;
  const int64_t depth = box.high[2] - box.low[2] + 1;
  const int64_t voxels = (box.high[0] - box.low[0] + 1) * width * depth;
  const int64_t base = g / shape.gaussians * grid.voxels();
  for (int64_t i = thread; i < voxels; i += kThreads) {
    const int64_t x = box.low[0] + i / depth / width;
    const int64_t y = box.low[1] + i / depth % width;
    const int64_t z = box.low[2] + i % depth;
    const int64_t voxel =
        base + (x * grid.cells[1] + y) * grid.cells[2] + z;
    const T d[3] = {mean[0] - voxel_centre<T>(x, 0, grid),
                    mean[1] - voxel_centre<T>(y, 1, grid),
                    mean[2] - voxel_centre<T>(z, 2, grid)};
    const T e = std::exp(-splat_distance(p, d[0], d[1], d[2]));
    T grad_e = 0;
    if (rest != nullptr && chunk == 0)
      grad_e = -grad_rest[voxel] * rest[voxel] /
               (1 - e + splat_epsilon<T>());
    for (int k = 0; k < kColumns; ++k) {
      const T value = c0 + k < K ? grad[voxel * K + c0 + k] : T(0);
      grad_e += value * row[k];
      sum[k] += value * e;
    }
    const T t = grad_e * e;
    T* m = sum + kColumns;
    m[0] += t * d[0];
    m[1] += t * d[1];
    m[2] += t * d[2];
    m[3] += t * d[0] * d[0];
    m[4] += t * d[1] * d[1];
    m[5] += t * d[2] * d[2];
    m[6] += t * d[0] * d[1];
    m[7] += t * d[1] * d[2];
    m[8] += t * d[0] * d[2];
  }
  for (int k = 0; k < kColumns + kMoments; ++k) {
    T value = sum[k];
    for (int offset = 16; offset > 0; offset /= 2)
      value += __shfl_down_sync(kFullWarp, value, offset);
    if (thread % 32 == 0)
      partial[thread / 32 * (kColumns + kMoments) + k] = value;
  }
  __syncthreads();
  if (thread >= kColumns + kMoments) return;
  T total = 0;
  for (int w = 0; w < kWarps; ++w)
    total += partial[w * (kColumns + kMoments) + thread];
  if (thread >= kColumns)
    moments[(chunk * count + g) * kMoments + thread - kColumns] = total;
  else if (c0 + thread < K)
    grad_table[g * K + c0 + thread] = total;
}

}  // namespace

template <typename T>
void splat_boxes_cuda(const T* means, const int32_t* radii, int64_t count,
                      const SplatGrid& grid, SplatBox* boxes, Stream stream) {
  MMTURBOX_LAUNCH(boxes_kernel<T>, grid_of(ceil_div(count, kThreads)),
                  kThreads, 0, stream, means, radii, count, grid, boxes);
}

template <typename T>
void splat_cuda(const T* means, const T* table, const T* precisions,
                const SplatBox* boxes, const SplatShape& shape,
                const SplatGrid& grid, T* sums, T* rest, Stream stream) {
  int64_t blocks = shape.batch * splat_chunks(shape.columns);
  for (int k = 0; k < 3; ++k) blocks *= ceil_div(grid.cells[k], kEdge);
  MMTURBOX_LAUNCH(splat_kernel<T>, grid_of(blocks), kTileThreads, 0, stream,
                  means, table, precisions, boxes, shape, grid, sums, rest);
}

template <typename T>
void splat_backward_cuda(const T* grad, const T* grad_rest, const T* rest,
                         const T* means, const T* table, const T* precisions,
                         const SplatBox* boxes, const SplatShape& shape,
                         const SplatGrid& grid, T* grad_table, T* moments,
                         Stream stream) {
  const int64_t blocks =
      shape.batch * shape.gaussians * splat_chunks(shape.columns);
  MMTURBOX_LAUNCH(gradients_kernel<T>, grid_of(blocks), kThreads, 0, stream,
                  grad, grad_rest, rest, means, table, precisions, boxes,
                  shape, grid, grad_table, moments);
}

#define MMTURBOX_SPLAT(T)                                                   \
  template void splat_boxes_cuda(const T*, const int32_t*, int64_t,         \
                                 const SplatGrid&, SplatBox*, Stream);      \
  template void splat_cuda(const T*, const T*, const T*, const SplatBox*,   \
                           const SplatShape&, const SplatGrid&, T*, T*,     \
                           Stream);                                         \
  template void splat_backward_cuda(                                        \
      const T*, const T*, const T*, const T*, const T*, const T*,           \
      const SplatBox*, const SplatShape&, const SplatGrid&, T*, T*, Stream);
MMTURBOX_SPLAT(float)
MMTURBOX_SPLAT(double)

}  // namespace mmturbox
