// Soft suppression. Each pick depends on all before it: one block takes the
// best box, lowers the scores of the others and finds the next best of them
// in the same pass over its memory.
//
// 1,000 boxes: 1,000 picks of 4 boxes a thread, 20 operations each; bound by
// about 2 us of latency a pick, 2 ms in all.
#include "nms.h"

#include "../common/nms.h"
#include "device.h"

namespace mmturbox {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// The better of two candidates; index -1 is none.
template <typename T>
__device__ void take_better(T& score, int64_t& index, T other_score,
                            int64_t other_index) {
  if (other_index < 0) return;
  const bool equal = !better_score(score, other_score) &&
                     !better_score(other_score, score);
  if (index < 0 || better_score(other_score, score) ||
      (equal && other_index < index)) {
    score = other_score;
    index = other_index;
  }
}

template <typename T>
__device__ void best_of_warp(T& score, int64_t& index) {
  for (int step = 16; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(kFullWarp, score, step);
    const long long other_index = __shfl_xor_sync(
        kFullWarp, static_cast<long long>(index), step);
    take_better(score, index, other, int64_t(other_index));
  }
}

template <typename T>
__global__ void soft_nms(const SoftNms task, const T* boxes, T* scores,
                         T* dets, int64_t* inds, int64_t* count,
                         bool* gone) {
  MMTURBOX_SHARED(T, warp_scores, kWarps);
  MMTURBOX_SHARED(int64_t, warp_indices, kWarps);
  const T offset = static_cast<T>(task.offset);
  const T min_score = static_cast<T>(task.min_score);
  const SoftWeight<T> weight{task.method, static_cast<T>(task.threshold),
                             static_cast<T>(task.sigma)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t picked = -1, picks = 0;
  for (;; ++picks) {
    T score = 0;
    int64_t index = -1;
    CornerBox<T> box{};
    if (picked >= 0) box = load_corner_box(boxes + picked * 4, offset);
    for (int64_t i = threadIdx.x; i < task.num_boxes; i += kThreads) {
      if (picked < 0) gone[i] = false;
      if (i == picked) gone[i] = true;
      if (gone[i]) continue;
      if (picked >= 0) {
        scores[i] *= weight(corner_iou(
            box, load_corner_box(boxes + i * 4, offset), offset));
        gone[i] = scores[i] < min_score;
        if (gone[i]) continue;
      }
      take_better(score, index, scores[i], i);
    }
    best_of_warp(score, index);
    if (lane == 0) {
      warp_scores[warp] = score;
      warp_indices[warp] = index;
    }
    __syncthreads();
    score = warp_scores[lane % kWarps];
    index = warp_indices[lane % kWarps];
    __syncthreads();
    best_of_warp(score, index);
    picked = index;
    if (picked < 0) break;
    if (threadIdx.x < 5)
      dets[picks * 5 + threadIdx.x] =
          threadIdx.x < 4 ? boxes[picked * 4 + threadIdx.x] : score;
    if (threadIdx.x == 0) inds[picks] = picked;
  }
  if (threadIdx.x == 0) *count = picks;
}

}  // namespace

template <typename T>
void soft_nms_cuda(const SoftNms& task, const T* boxes, T* scores, T* dets,
                   int64_t* inds, int64_t* count, bool* gone,
                   Stream stream) {
  MMTURBOX_LAUNCH((soft_nms<T>), 1, kThreads, 0, stream, task, boxes, scores,
                  dets, inds, count, gone);
}

template void soft_nms_cuda(const SoftNms&, const float*, float*, float*,
                            int64_t*, int64_t*, bool*, Stream);
template void soft_nms_cuda(const SoftNms&, const double*, double*, double*,
                            int64_t*, int64_t*, bool*, Stream);

}  // namespace mmturbox
