#include "voxel_cells.h"

#include <algorithm>

namespace mmturbox {
namespace {

constexpr int64_t kBlock = 64;  // small: blocks overlap in the pipeline

// Cells of x, y, z; -1 where outside or not finite. Rows are strided, so the
// columns are first brought together.
template <typename T>
inline __attribute__((always_inline)) void block_cells(
    const T* points, int64_t number, int64_t channels,
    const VoxelGrid<T>& grid, int32_t (*xyz)[kBlock]) {
  T value[3][kBlock];
#pragma GCC unroll 4
  for (int64_t i = 0; i < number; ++i) {
    const T* point = points + i * channels;
    value[0][i] = point[0];
    value[1][i] = point[1];
    value[2][i] = point[2];
  }
  for (int axis = 0; axis < 3; ++axis) {
    const T lower = grid.lower[axis], size = grid.size[axis];
    const T limit = static_cast<T>(grid.cells[axis]);
    for (int64_t i = 0; i < number; ++i) {
      const T c = std::floor((value[axis][i] - lower) / size);
      xyz[axis][i] =
          static_cast<int32_t>((c >= 0) & (c < limit) ? c : T(-1));
    }
  }
}

template <typename T>
inline __attribute__((always_inline)) void numbers_loop(
    const T* points, int64_t number, int64_t channels,
    const VoxelGrid<T>& grid, int64_t* cells) {
  int32_t xyz[3][kBlock];
  for (int64_t from = 0; from < number; from += kBlock) {
    const int64_t n = std::min(kBlock, number - from);
    block_cells(points + from * channels, n, channels, grid, xyz);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t x = xyz[0][i], y = xyz[1][i], z = xyz[2][i];
      const int64_t cell = (z * grid.cells[1] + y) * grid.cells[0] + x;
      cells[from + i] = (x | y | z) < 0 ? -1 : cell;
    }
  }
}

template <typename T>
inline __attribute__((always_inline)) void coors_loop(
    const T* points, int64_t number, int64_t channels,
    const VoxelGrid<T>& grid, int32_t* zyx) {
  int32_t xyz[3][kBlock];
  for (int64_t from = 0; from < number; from += kBlock) {
    const int64_t n = std::min(kBlock, number - from);
    block_cells(points + from * channels, n, channels, grid, xyz);
    int32_t* to = zyx + from * 3;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t x = xyz[0][i], y = xyz[1][i], z = xyz[2][i];
      const int32_t outside = (x | y | z) >> 31;  // all ones or zero
      to[i * 3] = z | outside;
      to[i * 3 + 1] = y | outside;
      to[i * 3 + 2] = x | outside;
    }
  }
}

}  // namespace

// Function templates cannot be cloned for instruction sets.
#define MMTURBOX_CELL_LOOPS(T)                                               \
  MMTURBOX_CLONES void cell_numbers(const T* points, int64_t number,         \
                                    int64_t channels,                        \
                                    const VoxelGrid<T>& grid,                \
                                    int64_t* cells) {                        \
    numbers_loop(points, number, channels, grid, cells);                     \
  }                                                                          \
  MMTURBOX_CLONES void cell_coors(const T* points, int64_t number,           \
                                  int64_t channels,                          \
                                  const VoxelGrid<T>& grid, int32_t* zyx) {  \
    coors_loop(points, number, channels, grid, zyx);                         \
  }
MMTURBOX_CELL_LOOPS(float)
MMTURBOX_CELL_LOOPS(double)
#undef MMTURBOX_CELL_LOOPS

}  // namespace mmturbox
