// Gradient of the overlap of pairs of rotated boxes, and the order of its
// corners. A thread a pair, no atomics.
//
// Gradient of 10,000 pairs in float32: 0.9 MB, 0.2 us on 4.8 TB/s; eight
// edges of 40 operations in double, 0.1 us on 34 TFLOP/s. Sorting: 252 bytes
// a pair, 0.5 us. Both are bound by their launch.
#include "diff_iou_rotated.h"

#include "../common/diff_iou_rotated.h"
#include "device.h"

namespace mmturbox {
namespace {

constexpr int kThreads = 128;

template <typename T>
__global__ void overlap_backward(const T* grad, const T* boxes1,
                                 const T* boxes2, int64_t n, T* grad1,
                                 T* grad2) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    overlap_gradients(boxes1 + i * 5, boxes2 + i * 5, grad[i], grad1 + i * 5,
                      grad2 + i * 5);
}

template <typename T>
__global__ void vertex_order(const T* vertices, const bool* mask, int64_t n,
                             int32_t* order) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    order_vertices(vertices + i * kVertices * 2, mask + i * kVertices,
                   order + i * (kCorners + 1));
}

}  // namespace

template <typename T>
void rotated_overlap_backward_cuda(const T* grad, const T* boxes1,
                                   const T* boxes2, int64_t n, T* grad1,
                                   T* grad2, Stream stream) {
  MMTURBOX_LAUNCH((overlap_backward<T>), grid_of(ceil_div(n, kThreads)),
                  kThreads, 0, stream, grad, boxes1, boxes2, n, grad1, grad2);
}

template <typename T>
void sort_vertices_cuda(const T* vertices, const bool* mask, int64_t n,
                        int32_t* order, Stream stream) {
  MMTURBOX_LAUNCH((vertex_order<T>), grid_of(ceil_div(n, kThreads)), kThreads,
                  0, stream, vertices, mask, n, order);
}

#define MMTURBOX_INSTANTIATE(T)                                              \
  template void rotated_overlap_backward_cuda(const T*, const T*, const T*,  \
                                              int64_t, T*, T*, Stream);      \
  template void sort_vertices_cuda(const T*, const bool*, int64_t, int32_t*, \
                                   Stream);
MMTURBOX_INSTANTIATE(float)
MMTURBOX_INSTANTIATE(double)
#undef MMTURBOX_INSTANTIATE

}  // namespace mmturbox
