// Launches of transform_points.cu.
#pragma once

#include <cstdint>

#include "../common/transform_points.h"

namespace mmturbox {

using Stream = void*;

constexpr int64_t kMaxColumns = 32;

// One sweep and what becomes of it; passed by value.
template <typename T>
struct SweepTask {
  const T* points;  // (number, width)
  int64_t number, width;
  const double* matrix;  // 12 values on the device
  T lag, radius;
  T range[6];
  bool ranged;
  int64_t columns[kMaxColumns], num_columns, time_column;
};

// keep[i] = 1 where point i stays.
template <typename T>
void keep_points_cuda(SweepTask<T> task, int32_t* keep, Stream stream);

// Point i becomes row place[i] - 1 of `out`, where it stays; without `place`
// every point stays, and the sweep's first is row `first`.
template <typename T>
void write_points_cuda(SweepTask<T> task, const int32_t* keep,
                       const int64_t* place, int64_t first, T* out,
                       Stream stream);

}  // namespace mmturbox
