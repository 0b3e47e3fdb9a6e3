// Launch functions of box_iou_rotated.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// out (rows, cols), or (rows) of each box with its counterpart.
template <typename T>
void box_iou_rotated_cuda(const T* boxes1, const T* boxes2, int64_t rows,
                          int64_t cols, int64_t mode, bool aligned, T* out,
                          Stream stream);

}  // namespace mmturbox
