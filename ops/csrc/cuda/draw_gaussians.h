// Launch functions of draw_gaussians.cu; pointers are on the device.
#pragma once

#include <cstdint>

#include "../common/draw_gaussians.h"

namespace mmturbox {

using Stream = void*;

// `maps` (planes x height x width) is zero before. The radius of a box is in
// `radii` or, where that is null, follows from its size.
struct GaussianMaps {
  float* maps;
  int64_t planes, height, width;
};

void draw_gaussians_cuda(const int64_t* planes, const int32_t* centers,
                         const int64_t* radii, const float* sizes,
                         GaussianRadius radius, int64_t count,
                         GaussianMaps maps, Stream stream);

}  // namespace mmturbox
