// CUDA kernels of ball queries: a thread a centre.
#include "ball_query.h"

#include "../common/point_distance.h"
#include "../common/stacked_rows.h"
#include "device.h"

namespace mmturbox {
namespace {

constexpr int kBlock = 128;

// What the threads of a block share.
template <typename T>
struct Room {
  T* tile;          // kBlock points
  int* searching;   // two flags, which take turns: some ball is not full
};

// Fill the ball of centre `q` with points [begin, end), which lie within
// [first, last), the points that the block goes through together.
template <typename T>
__device__ void fill_ball(const BallQuery<T>& query, int64_t q, bool real,
                          int64_t begin, int64_t end, int64_t first,
                          int64_t last, const Room<T>& room) {
  const int64_t row = real ? q : 0;
  const T center[3] = {query.centers[row * 3], query.centers[row * 3 + 1],
                       query.centers[row * 3 + 2]};
  int32_t* out = query.out + row * query.samples;
  int64_t found = real ? 0 : query.samples;
  int turn = 0;
  for (int64_t start = first; start < last; start += kBlock, turn ^= 1) {
    const int64_t left = last - start;
    const int number = left < kBlock ? static_cast<int>(left) : kBlock;
    if (threadIdx.x == 0) room.searching[turn] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < number * 3; i += kBlock)
      room.tile[i] = query.points[start * 3 + i];
    if (found < query.samples && start < end) room.searching[turn] = 1;
    __syncthreads();
    if (!room.searching[turn]) break;
    for (int i = 0; i < number && found < query.samples; ++i) {
      const int64_t point = start + i;
      if (point < begin || point >= end) continue;
      const T d2 = squared_length(room.tile[i * 3] - center[0],
                                  room.tile[i * 3 + 1] - center[1],
                                  room.tile[i * 3 + 2] - center[2]);
      if (in_shell(d2, query.min2, query.max2))
        out[found++] = static_cast<int32_t>(point - begin);
    }
  }
  __syncthreads();
  if (!real) return;
  const int32_t first_found = found > 0 ? out[0] : 0;
  for (int64_t s = found; s < query.samples; ++s)
    out[s] = found == 0 && s == 0 ? query.none : first_found;
}

// Up to n x m distances of 8 operations, fewer where balls fill up: 16,384 x
// 4,096 are 0.5 G operations, 25 us at a fifth of the peak rate. A block
// reads points once, through shared memory; it writes 4 S bytes a centre.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    query_kernel(BallQuery<T> query, int64_t blocks_a_cloud, int64_t blocks,
                 int64_t n, int64_t m) {
  MMTURBOX_SHARED(T, tile, kBlock * 3);
  MMTURBOX_SHARED(int, searching, 2);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t b = block / blocks_a_cloud;
    const int64_t q = block % blocks_a_cloud * kBlock + threadIdx.x;
    fill_ball(query, b * m + q, q < m, b * n, b * n + n, b * n, b * n + n,
              Room<T>{tile, searching});
  }
}

// As above. A block goes through the points of its centres' samples, from
// the first one's on.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    stacked_kernel(BallQuery<T> query, const int32_t* counts,
                   const int32_t* center_counts, int64_t samples, int64_t n,
                   int64_t m) {
  MMTURBOX_SHARED(T, tile, kBlock * 3);
  MMTURBOX_SHARED(int, searching, 2);
  MMTURBOX_SHARED(unsigned long long, ends, 2);
  const int64_t blocks = ceil_div(m, kBlock);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t q = block * kBlock + threadIdx.x;
    RowRange rows{0, 0};
    if (q < m) rows = rows_of_item(counts, center_counts, samples, n, q);
    if (threadIdx.x == 0) {
      ends[0] = n;
      ends[1] = 0;
    }
    __syncthreads();
    if (rows.end > rows.begin) {
      atomicMin(&ends[0], static_cast<unsigned long long>(rows.begin));
      atomicMax(&ends[1], static_cast<unsigned long long>(rows.end));
    }
    __syncthreads();
    fill_ball(query, q, q < m, rows.begin, rows.end,
              static_cast<int64_t>(ends[0]), static_cast<int64_t>(ends[1]),
              Room<T>{tile, searching});
  }
}

}  // namespace

template <typename T>
void ball_query_cuda(const BallQuery<T>& query, int64_t clouds, int64_t n,
                     int64_t m, Stream stream) {
  const int64_t each = ceil_div(m, kBlock), blocks = clouds * each;
  MMTURBOX_LAUNCH((query_kernel<T>), grid_of(blocks), kBlock, 0, stream,
                  query, each, blocks, n, m);
}

template <typename T>
void ball_query_stacked_cuda(const BallQuery<T>& query,
                             const int32_t* counts,
                             const int32_t* center_counts, int64_t samples,
                             int64_t n, int64_t m, Stream stream) {
  MMTURBOX_LAUNCH((stacked_kernel<T>), grid_of(ceil_div(m, kBlock)), kBlock,
                  0, stream, query, counts, center_counts, samples, n, m);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void ball_query_cuda(const BallQuery<T>&, int64_t, int64_t,      \
                                int64_t, Stream);                           \
  template void ball_query_stacked_cuda(const BallQuery<T>&,                \
                                        const int32_t*, const int32_t*,     \
                                        int64_t, int64_t, int64_t, Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
