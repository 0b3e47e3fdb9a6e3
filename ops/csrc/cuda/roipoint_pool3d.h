// Launches of roipoint_pool3d.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

struct RoiPointShape {
  int64_t clouds, points, boxes, samples;
};

// index (clouds, boxes, samples): points in each box, -1 in an empty one.
template <typename T>
void roipoint_choose_cuda(const T* points, const T* boxes,
                          const RoiPointShape& shape, int32_t* index,
                          int32_t* empty, Stream stream);

// Rows of 3 coordinates and `channels` features of `width` bytes a value.
void roipoint_copy_cuda(const void* points, const void* features,
                        const int32_t* index, const RoiPointShape& shape,
                        int64_t channels, int64_t width, void* out,
                        Stream stream);

}  // namespace mmturbox
