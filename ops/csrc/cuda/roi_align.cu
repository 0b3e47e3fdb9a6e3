// CUDA kernels of RoI align.
#include "roi_align.h"

#include "../common/roi_align.h"
#include "each.h"

namespace mmturbox {
namespace {

// The bin of output element i, (roi, channel, row, column), and its region.
template <typename T>
struct Bin {
  int64_t row, column, channel;
  const T* roi;
  bool valid;

  MMTURBOX_HD Bin(int64_t i, const T* rois, const RoiAlignShape& s) {
    column = i % s.bins_w;
    row = i / s.bins_w % s.bins_h;
    channel = i / (s.bins_w * s.bins_h) % s.channels;
    roi = rois + i / (s.bins_w * s.bins_h * s.channels) * 5;
    valid = roi[0] >= 0 && roi[0] < static_cast<T>(s.batch);
  }

  MMTURBOX_HD RoiAxis<T> y(const RoiAlignShape& s) const {
    return {roi[2], roi[4], static_cast<T>(s.scale), s.bins_h, s.ratio,
            s.aligned};
  }
  MMTURBOX_HD RoiAxis<T> x(const RoiAlignShape& s) const {
    return {roi[1], roi[3], static_cast<T>(s.scale), s.bins_w, s.ratio,
            s.aligned};
  }
  MMTURBOX_HD int64_t map(const RoiAlignShape& s) const {
    return (static_cast<int64_t>(roi[0]) * s.channels + channel) * s.height *
           s.width;
  }
};

// A thread an output. At 512 regions x 256 channels x 7 x 7 writes 26 MB and
// makes four reads a sample (25.7 million samples with a ratio of 2), which
// neighbouring threads share in the first cache; maps of 256 x 200 x 336 are
// 69 MB.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    roi_align_kernel(const T* input, const T* rois, RoiAlignShape s,
                     int64_t count, T* out, T* arg_y, T* arg_x) {
  MMTURBOX_EACH(i, count) {
    const Bin<T> bin(i, rois, s);
    const RoiAxis<T> ys = bin.y(s), xs = bin.x(s);
    T result = 0, best_y = -1, best_x = -1;
    const int64_t samples = bin.valid ? ys.samples * xs.samples : 0;
    const T* map = bin.valid ? input + bin.map(s) : input;
    for (int64_t k = 0; k < samples; ++k) {
      const T y = ys.at(bin.row, k / xs.samples);
      const T x = xs.at(bin.column, k % xs.samples);
      const T value = Bilinear<T>(y, x, s.height, s.width).read(map);
      if (!s.take_max) {
        result += value;
      } else if (k == 0 || value > result) {
        result = value;
        best_y = y;
        best_x = x;
      }
    }
    if (!s.take_max && samples > 0) result /= static_cast<T>(samples);
    out[i] = result;
    if (!s.take_max) continue;
    arg_y[i] = best_y;
    arg_x[i] = best_x;
  }
}

template <typename T>
__device__ void add_to(const Bilinear<T>& read, T value, T* map) {
  if (!read.inside) return;
  for (int k = 0; k < 4; ++k)
    atomicAdd(map + read.position[k], read.weight[k] * value);
}

// A thread an output; four atomic additions a sample. Bins of one region
// share few pixels, regions share them where they overlap.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    roi_align_backward_kernel(const T* grad, const T* rois, const T* arg_y,
                              const T* arg_x, RoiAlignShape s, int64_t count,
                              T* out) {
  MMTURBOX_EACH(i, count) {
    const Bin<T> bin(i, rois, s);
    if (!bin.valid) continue;
    T* map = out + bin.map(s);
    if (s.take_max) {
      if (arg_y[i] == -1 && arg_x[i] == -1) continue;
      add_to(Bilinear<T>(arg_y[i], arg_x[i], s.height, s.width), grad[i],
             map);
      continue;
    }
    const RoiAxis<T> ys = bin.y(s), xs = bin.x(s);
    const int64_t samples = ys.samples * xs.samples;
    for (int64_t k = 0; k < samples; ++k)
      add_to(Bilinear<T>(ys.at(bin.row, k / xs.samples),
                         xs.at(bin.column, k % xs.samples), s.height,
                         s.width),
             grad[i] / static_cast<T>(samples), map);
  }
}

int64_t outputs(const RoiAlignShape& s) {
  return s.rois * s.channels * s.bins_h * s.bins_w;
}

}  // namespace

template <typename T>
void roi_align_cuda(const T* input, const T* rois, const RoiAlignShape& shape,
                    T* out, T* arg_y, T* arg_x, Stream stream) {
  const int64_t count = outputs(shape);
  MMTURBOX_LAUNCH((roi_align_kernel<T>), blocks_for(count), kThreads, 0,
                  stream, input, rois, shape, count, out, arg_y, arg_x);
}

template <typename T>
void roi_align_backward_cuda(const T* grad, const T* rois, const T* arg_y,
                             const T* arg_x, const RoiAlignShape& shape,
                             T* out, Stream stream) {
  const int64_t count = outputs(shape);
  MMTURBOX_LAUNCH((roi_align_backward_kernel<T>), blocks_for(count), kThreads,
                  0, stream, grad, rois, arg_y, arg_x, shape, count, out);
}

#define MMTURBOX_INSTANCE(T)                                                \
  template void roi_align_cuda(const T*, const T*, const RoiAlignShape&,    \
                               T*, T*, T*, Stream);                         \
  template void roi_align_backward_cuda(const T*, const T*, const T*,       \
                                        const T*, const RoiAlignShape&, T*, \
                                        Stream);
MMTURBOX_INSTANCE(float)
MMTURBOX_INSTANCE(double)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
