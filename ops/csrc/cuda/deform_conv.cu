// CUDA kernels of deformable convolution: columns, and the gradients behind
// them. The products are PyTorch's.
#include "deform_conv.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "device.h"

namespace mmturbox {
namespace {

using Half = torch::headeronly::Half;
using BFloat16 = torch::headeronly::BFloat16;

// A block has a warp of neighbouring positions for each slice of channels.
constexpr int kSlices = 8;
constexpr int kThreads = 32 * kSlices;

template <typename T>
struct SumType {
  using type = float;
};
template <>
struct SumType<double> {
  using type = double;
};

// What a block works on: 32 positions of one tap of one group of offsets.
struct Block {
  int64_t image, group, tap, position;

  __device__ Block(const DeformShape& s, int64_t first) {
    const int64_t strips = ceil_div(s.positions(), 32);
    int64_t rest = blockIdx.x;
    position = rest % strips * 32 + threadIdx.x % 32;
    rest /= strips;
    tap = rest % s.taps();
    rest /= s.taps();
    group = rest % s.deform_groups;
    image = first + rest / s.deform_groups;
  }
};

// Where and with what weight a sample is read; once per position and tap, in
// registers, for all channels of a slice.
template <typename Sum>
struct Sample {
  int64_t cell[4];
  Sum weight[4], lx, ly, share;
  bool inside;

  template <typename T>
  __device__ Sample(const DeformShape& s, const Block& b, const T* offset,
                    const T* mask) {
    inside = b.position < s.positions();
    lx = ly = share = 0;
    for (int k = 0; k < 4; ++k) {
      cell[k] = -1;
      weight[k] = 0;
    }
    if (!inside) return;
    const T* at = offset + s.offset_at(b.image, b.group, b.tap, b.position);
    const BilinearRead<Sum> read =
        deform_read(s, b.tap, b.position, static_cast<Sum>(at[0]),
                    static_cast<Sum>(at[s.positions()]));
    inside = read.inside;
    if (!inside) return;
    lx = read.lx;
    ly = read.ly;
    share = mask == nullptr
                ? Sum(1)
                : static_cast<Sum>(
                      mask[s.mask_at(b.image, b.group, b.tap, b.position)]);
    for (int k = 0; k < 4; ++k) {
      cell[k] = read.cell(k, s.height, s.width);
      weight[k] = read.weight(k);
    }
  }
};

// At 6 x 256 x 54 x 100 and 3 x 3 taps in float32 it must read 33 MB of maps
// and 3.5 MB of offsets and write 300 MB: 70 us at 4.8 TB/s. Four corners a
// sample are 1.2 GB through the caches: 200 us at 6 TB/s.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    columns_kernel(const T* __restrict__ input, const T* __restrict__ offset,
                   const T* __restrict__ mask, DeformShape s, int64_t first,
                   T* __restrict__ columns) {
  using Sum = typename SumType<T>::type;
  const Block b(s, first);
  if (b.position >= s.positions()) return;
  const Sample<Sum> sample(s, b, offset, mask);
  const int64_t map = s.height * s.width;
  const int64_t end = (b.group + 1) * s.shared_width();
  for (int64_t c = b.group * s.shared_width() + threadIdx.x / 32; c < end;
       c += kSlices) {
    const T* values = input + (b.image * s.channels + c) * map;
    Sum sum = 0;
    for (int k = 0; k < 4; ++k)
      if (sample.cell[k] >= 0)
        sum += sample.weight[k] * static_cast<Sum>(values[sample.cell[k]]);
    columns[(((b.image - first) * s.channels + c) * s.taps() + b.tap) *
                s.positions() +
            b.position] = static_cast<T>(sum * sample.share);
  }
}

// A thread sums a slice of the channels in registers, the block its slices,
// and offset and mask get one write. The gradient of the input adds by
// atomics, since samples overlap. At the shape above it reads 300 MB of
// columns and 33 MB of maps (70 us at 4.8 TB/s) and makes 300 million atomic
// additions in the second cache, four a sample: about 300 us.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const T* __restrict__ columns,
                     const T* __restrict__ input,
                     const T* __restrict__ offset, const T* __restrict__ mask,
                     DeformShape s, int64_t first,
                     typename SumType<T>::type* grad_input,
                     T* __restrict__ grad_offset, T* __restrict__ grad_mask) {
  using Sum = typename SumType<T>::type;
  MMTURBOX_SHARED(Sum, partial, kThreads * 4);
  const Block b(s, first);
  const Sample<Sum> sample(s, b, offset, mask);
  const int64_t map = s.height * s.width;
  const int64_t end = (b.group + 1) * s.shared_width();
  Sum dot[4] = {0, 0, 0, 0};
  for (int64_t c = b.group * s.shared_width() + threadIdx.x / 32;
       sample.inside && c < end; c += kSlices) {
    const int64_t start = (b.image * s.channels + c) * map;
    const Sum grad = static_cast<Sum>(
        columns[(((b.image - first) * s.channels + c) * s.taps() + b.tap) *
                    s.positions() +
                b.position]);
    for (int k = 0; k < 4; ++k) {
      if (sample.cell[k] < 0) continue;
      dot[k] += grad * static_cast<Sum>(input[start + sample.cell[k]]);
      atomicAdd(grad_input + start + sample.cell[k],
                grad * sample.share * sample.weight[k]);
    }
  }
  for (int k = 0; k < 4; ++k) partial[k * kThreads + threadIdx.x] = dot[k];
  __syncthreads();
  if (threadIdx.x >= 32 || b.position >= s.positions()) return;
  for (int k = 0; k < 4; ++k)
    for (int slice = 1; slice < kSlices; ++slice)
      dot[k] += partial[k * kThreads + slice * 32 + threadIdx.x];
  const int64_t at = s.offset_at(b.image, b.group, b.tap, b.position);
  grad_offset[at] =
      static_cast<T>(sample.share * bilinear_slope_y(sample.lx, dot));
  grad_offset[at + s.positions()] =
      static_cast<T>(sample.share * bilinear_slope_x(sample.ly, dot));
  if (grad_mask == nullptr) return;
  Sum total = 0;
  for (int k = 0; k < 4; ++k) total += sample.weight[k] * dot[k];
  grad_mask[s.mask_at(b.image, b.group, b.tap, b.position)] =
      static_cast<T>(total);
}

unsigned blocks_of(const DeformShape& s, int64_t images) {
  return grid_of(images * s.deform_groups * s.taps() *
                 ceil_div(s.positions(), 32));
}

}  // namespace

template <typename T>
void deform_columns_cuda(const T* input, const T* offset, const T* mask,
                         const DeformShape& shape, int64_t first,
                         int64_t images, T* columns, Stream stream) {
  MMTURBOX_LAUNCH(columns_kernel<T>, blocks_of(shape, images), kThreads, 0,
                  stream, input, offset, mask, shape, first, columns);
}

template <typename T, typename Sum>
void deform_gradients_cuda(const T* columns, const T* input, const T* offset,
                           const T* mask, const DeformShape& shape,
                           int64_t first, int64_t images, Sum* grad_input,
                           T* grad_offset, T* grad_mask, Stream stream) {
  MMTURBOX_LAUNCH(gradients_kernel<T>, blocks_of(shape, images), kThreads, 0,
                  stream, columns, input, offset, mask, shape, first,
                  grad_input, grad_offset, grad_mask);
}

#define MMTURBOX_DEFORM(T, Sum)                                             \
  template void deform_columns_cuda(const T*, const T*, const T*,           \
                                    const DeformShape&, int64_t, int64_t,   \
                                    T*, Stream);                            \
  template void deform_gradients_cuda(                                      \
      const T*, const T*, const T*, const T*, const DeformShape&, int64_t,  \
      int64_t, Sum*, T*, T*, Stream);
MMTURBOX_DEFORM(float, float)
MMTURBOX_DEFORM(double, double)
MMTURBOX_DEFORM(Half, float)
MMTURBOX_DEFORM(BFloat16, float)

}  // namespace mmturbox
