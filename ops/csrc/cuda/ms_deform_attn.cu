// CUDA kernels of multi-scale deformable attention.
//
// Camera cross-attention of BEVFormer-base, bf16: about 55,000 hits of 8
// heads, 32 channels and 32 samples. Forward must move 284 MB of device
// memory (95 MB of values, 169 MB of float32 locations and weights, 20 MB of
// results: 59 us at 4.8 TB/s) and reads 55,000 x 8 x 32 x 4 corners x 64
// bytes = 3.6 GB through the second cache: 0.6 ms at 6 TB/s, which is the
// limit. Backward reads the same again, writes 169 MB more and adds 7.2 GB
// by float32 atomics in the second cache.
// Self-attention over two maps of 200 x 200: 80,000 rows of 4 samples, 0.65
// GB through the second cache (0.11 ms), 0.11 GB of device memory.
#include "ms_deform_attn.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "../common/bilinear.h"
#include "attention_kernels.h"

namespace mmturbox {
namespace {

template <typename Sum>
struct BilinearSampler {
  static constexpr int kCorners = 4;
  using Tap = StagedTap<Sum, kCorners>;
  const Sum* locations;
  const int64_t *shapes, *starts;
  int64_t cells, samples, points;

  __device__ void place(int64_t unit, int64_t i, Tap* tap) const {
    const int64_t level = i / points;
    const int64_t height = shapes[level * 2], width = shapes[level * 2 + 1];
    const Sum* at = locations + (unit * samples + i) * 2;
    const BilinearRead<Sum> read(
        at[0] * static_cast<Sum>(width) - Sum(0.5),
        at[1] * static_cast<Sum>(height) - Sum(0.5), height, width);
    tap->lx = read.inside ? read.lx : Sum(0);
    tap->ly = read.inside ? read.ly : Sum(0);
    for (int k = 0; k < kCorners; ++k) {
      int64_t cell = read.inside ? read.cell(k, height, width) : -1;
      if (cell >= 0) cell += starts[level];
      tap->cell[k] =
          static_cast<int32_t>(cell >= 0 && cell < cells ? cell : -1);
    }
  }

  __device__ static void slopes(const Tap& tap, const Sum* dot, Sum* part) {
    for (int k = 0; k < kCorners; ++k) part[0] += tap.corner(k) * dot[k];
    part[1] = bilinear_slope_x(tap.ly, dot);
    part[2] = bilinear_slope_y(tap.lx, dot);
  }

  __device__ void store(int64_t unit, int64_t i, Sum weight, const Sum* sum,
                        Sum* grad) const {
    const int64_t level = i / points;
    Sum* to = grad + (unit * samples + i) * 2;
    to[0] = weight * sum[1] * static_cast<Sum>(shapes[level * 2 + 1]);
    to[1] = weight * sum[2] * static_cast<Sum>(shapes[level * 2]);
  }
};

template <typename T>
BilinearSampler<typename SumType<T>::type> sampler_of(
    const AttentionArgs& a) {
  using Sum = typename SumType<T>::type;
  return {static_cast<const Sum*>(a.locations), a.shapes, a.starts,  a.cells,
          a.levels * a.points,                  a.points};
}

}  // namespace

template <typename T>
void ms_deform_attn_cuda(const AttentionArgs& args, Stream stream) {
  attend(maps_of<T>(args), sampler_of<T>(args), static_cast<T*>(args.out),
         stream);
}

template <typename T>
void ms_deform_attn_backward_cuda(const AttentionArgs& args, Stream stream) {
  using Sum = typename SumType<T>::type;
  const AttentionGradients<T> grad{static_cast<const T*>(args.out),
                                   static_cast<Sum*>(args.grad_value),
                                   static_cast<Sum*>(args.grad_weights),
                                   static_cast<Sum*>(args.grad_locations)};
  attend_backward(maps_of<T>(args), sampler_of<T>(args), grad, stream);
}

#define MMTURBOX_ATTENTION(T)                                               \
  template void ms_deform_attn_cuda<T>(const AttentionArgs&, Stream);       \
  template void ms_deform_attn_backward_cuda<T>(const AttentionArgs&, Stream);
MMTURBOX_ATTENTION(float)
MMTURBOX_ATTENTION(double)
MMTURBOX_ATTENTION(torch::headeronly::Half)
MMTURBOX_ATTENTION(torch::headeronly::BFloat16)

}  // namespace mmturbox
