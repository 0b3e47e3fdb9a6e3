// Shape of a deformable convolution and where its taps read; shared by the
// CPU and the CUDA kernels.
#pragma once

#include "bilinear.h"

namespace mmturbox {

struct DeformShape {
  int64_t batch, channels, height, width;
  int64_t out_channels, kernel_h, kernel_w, out_h, out_w;
  int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t groups, deform_groups;

  MMTURBOX_HD int64_t taps() const { return kernel_h * kernel_w; }
  MMTURBOX_HD int64_t positions() const { return out_h * out_w; }
  // Channels of one group, and those that share offsets.
  MMTURBOX_HD int64_t group_width() const { return channels / groups; }
  MMTURBOX_HD int64_t shared_width() const { return channels / deform_groups; }

  // Where the mask of (image, group of offsets, tap, position) is.
  MMTURBOX_HD int64_t mask_at(int64_t image, int64_t group, int64_t tap,
                              int64_t position) const {
    return ((image * deform_groups + group) * taps() + tap) * positions() +
           position;
  }

  // Where its offset along y is; that along x is `positions()` further on.
  MMTURBOX_HD int64_t offset_at(int64_t image, int64_t group, int64_t tap,
                                int64_t position) const {
    return 2 * mask_at(image, group, tap, 0) + position;
  }
};

// `y_offset` and `x_offset` in pixels.
template <typename T>
MMTURBOX_HD BilinearRead<T> deform_read(const DeformShape& s, int64_t tap,
                                        int64_t position, T y_offset,
                                        T x_offset) {
  const int64_t y = position / s.out_w * s.stride_h - s.pad_h +
                    tap / s.kernel_w * s.dilation_h;
  const int64_t x = position % s.out_w * s.stride_w - s.pad_w +
                    tap % s.kernel_w * s.dilation_w;
  return BilinearRead<T>(static_cast<T>(x) + x_offset,
                         static_cast<T>(y) + y_offset, s.height, s.width);
}

}  // namespace mmturbox
