// CUDA kernels that move, filter and merge sweeps. Bytes are those of ten
// sweeps of 35,000 points of five float32 values, of which four are kept.
#include "transform_points.h"

#include "each.h"

namespace mmturbox {
namespace {

template <typename T>
MMTURBOX_HD void move(const SweepTask<T>& task, const T* point, T* moved) {
  if (is_identity(task.matrix)) {
    for (int axis = 0; axis < 3; ++axis) moved[axis] = point[axis];
  } else {
    move_point(point, task.matrix, moved);
  }
}

// Reads 7.0 MB, writes 1.4 MB.
template <typename T>
__global__ void keep_kernel(SweepTask<T> task, int32_t* keep) {
  MMTURBOX_EACH(i, task.number) {
    const T* point = task.points + i * task.width;
    bool stays = !is_close(point, task.radius);
    if (stays && task.ranged) {
      T moved[3];
      move(task, point, moved);
      stays = in_range(moved, task.range);
    }
    keep[i] = stays;
  }
}

// Reads 11.2 MB, writes 5.6 MB.
template <typename T>
__global__ void write_kernel(SweepTask<T> task, const int32_t* keep,
                             const int64_t* place, int64_t first, T* out) {
  MMTURBOX_EACH(i, task.number) {
    if (place != nullptr && keep[i] == 0) continue;
    const T* point = task.points + i * task.width;
    T moved[3];
    move(task, point, moved);
    const int64_t row = place != nullptr ? place[i] - 1 : first + i;
    for (int64_t k = 0; k < task.num_columns; ++k) {
      const int64_t column = task.columns[k];
      out[row * task.num_columns + k] =
          column < 3                   ? moved[column]
          : column == task.time_column ? task.lag
                                       : point[column];
    }
  }
}

}  // namespace

template <typename T>
void keep_points_cuda(SweepTask<T> task, int32_t* keep, Stream stream) {
  MMTURBOX_LAUNCH((keep_kernel<T>), blocks_for(task.number), kThreads, 0,
                  stream, task, keep);
}

template <typename T>
void write_points_cuda(SweepTask<T> task, const int32_t* keep,
                       const int64_t* place, int64_t first, T* out,
                       Stream stream) {
  MMTURBOX_LAUNCH((write_kernel<T>), blocks_for(task.number), kThreads, 0,
                  stream, task, keep, place, first, out);
}

#define MMTURBOX_INSTANTIATE(T)                                             \
  template void keep_points_cuda(SweepTask<T>, int32_t*, Stream);           \
  template void write_points_cuda(SweepTask<T>, const int32_t*,             \
                                  const int64_t*, int64_t, T*, Stream);
MMTURBOX_INSTANTIATE(float)
MMTURBOX_INSTANTIATE(double)
#undef MMTURBOX_INSTANTIATE

}  // namespace mmturbox
