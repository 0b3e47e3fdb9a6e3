// Launch functions of diff_iou_rotated.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

template <typename T>
void rotated_overlap_backward_cuda(const T* grad, const T* boxes1,
                                   const T* boxes2, int64_t n, T* grad1,
                                   T* grad2, Stream stream);

template <typename T>
void sort_vertices_cuda(const T* vertices, const bool* mask, int64_t n,
                        int32_t* order, Stream stream);

}  // namespace mmturbox
