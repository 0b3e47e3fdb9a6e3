// Launches of scatter_points.cu: N points, M voxels, C channels. `end` is
// the running sum of `count`; `order` lists the points by voxel.
#pragma once

#include <cstdint>

#include "../common/scatter_points.h"

namespace mmturbox {

using Stream = void*;

template <typename T>
void voxel_reduce_cuda(const T* feats, const int32_t* count,
                       const int64_t* end, const int64_t* order,
                       int64_t voxels, int64_t channels, int64_t mode, T* out,
                       Stream stream);

// Of sums and means: (N, C), all of it.
template <typename T>
void sum_backward_cuda(const T* grad, const int32_t* map,
                       const int32_t* count, bool mean, int64_t points,
                       int64_t channels, T* out, Stream stream);

// Of maxima: only the first point that has a maximum is written.
template <typename T>
void max_backward_cuda(const T* grad, const T* feats, const T* reduced,
                       const int32_t* count, const int64_t* end,
                       const int64_t* order, int64_t voxels,
                       int64_t channels, T* out, Stream stream);

}  // namespace mmturbox
