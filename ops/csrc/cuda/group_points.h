// Launches of group_points.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// A stacked batch: rows and groups of its samples.
struct Stacked {
  const int32_t *counts, *group_counts;
  int64_t samples, rows, groups, channels, per_group;
  const int32_t* index;
};

// Values of `width` bytes, (rows, n) and (rows, picks); `channels` rows share
// the indices of a sample.
void gather_points_cuda(const void* features, const int32_t* index,
                        int64_t rows, int64_t channels, int64_t n,
                        int64_t picks, int64_t width, void* out,
                        Stream stream);
void group_points_stacked_cuda(const void* features, const Stacked& stacked,
                               int64_t width, void* out, Stream stream);

// They add to `out`.
template <typename T>
void gather_points_backward_cuda(const T* grad, const int32_t* index,
                                 int64_t rows, int64_t channels, int64_t n,
                                 int64_t picks, T* out, Stream stream);
template <typename T>
void group_points_stacked_backward_cuda(const T* grad, const Stacked& stacked,
                                        T* out, Stream stream);

}  // namespace mmturbox
