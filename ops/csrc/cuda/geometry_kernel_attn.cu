// CUDA kernels of geometric kernel attention.
//
// MapTR: about 30,000 hits of 4 heads, 64 channels and 15 cells of maps of
// 15 x 25. In bf16 forward must move 20 MB of device memory and reads
// 30,000 x 4 x 15 x 128 bytes = 230 MB through the caches, of which the first
// holds most (a row of a kernel is neighbouring cells): 40 us at 6 TB/s.
#include "geometry_kernel_attn.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "../common/geometry_kernel_attn.h"
#include "attention_kernels.h"

namespace mmturbox {
namespace {

template <typename Sum>
struct KernelSampler {
  static constexpr int kCorners = 1;
  using Tap = StagedTap<Sum, kCorners>;
  const Sum* references;
  const int64_t *shapes, *starts;
  int64_t cells, points;
  KernelShape kernel;

  __device__ void place(int64_t unit, int64_t i, Tap* tap) const {
    const int64_t level = i / points;
    const int64_t height = shapes[level * 2], width = shapes[level * 2 + 1];
    const Sum* at = references + unit * 2;
    const int64_t cell =
        starts[level] +
        kernel_cell(at[0], at[1], i % points, kernel, height, width);
    tap->lx = tap->ly = 0;
    tap->cell[0] = static_cast<int32_t>(
        height > 0 && width > 0 && cell >= 0 && cell < cells ? cell : -1);
  }

  __device__ static void slopes(const Tap& /*tap*/, const Sum* dot,
                                Sum* part) {
    part[0] = dot[0];
  }

  __device__ void store(int64_t, int64_t, Sum, const Sum*, Sum*) const {}
};

template <typename T>
KernelSampler<typename SumType<T>::type> sampler_of(const AttentionArgs& a) {
  using Sum = typename SumType<T>::type;
  return {static_cast<const Sum*>(a.locations),
          a.shapes,
          a.starts,
          a.cells,
          a.points,
          {a.kernel[0], a.kernel[1], a.kernel[2]}};
}

}  // namespace

template <typename T>
void geometry_kernel_attn_cuda(const AttentionArgs& args, Stream stream) {
  attend(maps_of<T>(args), sampler_of<T>(args), static_cast<T*>(args.out),
         stream);
}

template <typename T>
void geometry_kernel_attn_backward_cuda(const AttentionArgs& args,
                                        Stream stream) {
  using Sum = typename SumType<T>::type;
  const AttentionGradients<T> grad{static_cast<const T*>(args.out),
                                   static_cast<Sum*>(args.grad_value),
                                   static_cast<Sum*>(args.grad_weights),
                                   nullptr};
  attend_backward(maps_of<T>(args), sampler_of<T>(args), grad, stream);
}

#define MMTURBOX_KERNEL_ATTENTION(T)                                        \
  template void geometry_kernel_attn_cuda<T>(const AttentionArgs&, Stream); \
  template void geometry_kernel_attn_backward_cuda<T>(const AttentionArgs&, \
                                                      Stream);
MMTURBOX_KERNEL_ATTENTION(float)
MMTURBOX_KERNEL_ATTENTION(double)
MMTURBOX_KERNEL_ATTENTION(torch::headeronly::Half)
MMTURBOX_KERNEL_ATTENTION(torch::headeronly::BFloat16)

}  // namespace mmturbox
