// Launch functions of roi_align.cu; pointers are on the device.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

struct RoiAlignShape {
  int64_t rois, batch, channels, height, width;  // of the maps
  int64_t bins_h, bins_w, ratio;
  double scale;
  bool take_max, aligned;
};

// The arguments of the maximum are null for averages.
template <typename T>
void roi_align_cuda(const T* input, const T* rois, const RoiAlignShape& shape,
                    T* out, T* arg_y, T* arg_x, Stream stream);

// Adds to `out`, which is zero before.
template <typename T>
void roi_align_backward_cuda(const T* grad, const T* rois, const T* arg_y,
                             const T* arg_x, const RoiAlignShape& shape,
                             T* out, Stream stream);

}  // namespace mmturbox
