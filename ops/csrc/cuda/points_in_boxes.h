// Launches of points_in_boxes.cu: B samples of M points and T boxes.
#pragma once

#include <cstdint>

#include "../common/points_in_boxes.h"

namespace mmturbox {

using Stream = void*;

// (B, M): index of the first box that holds each point, or -1.
template <typename T>
void points_in_boxes_part_cuda(const T* points, const T* boxes,
                               int64_t samples, int64_t num_points,
                               int64_t num_boxes, int32_t* first,
                               Stream stream);

// (B, M, T): 1 where box t holds point m.
template <typename T>
void points_in_boxes_all_cuda(const T* points, const T* boxes,
                              int64_t samples, int64_t num_points,
                              int64_t num_boxes, int32_t* inside,
                              Stream stream);

}  // namespace mmturbox
