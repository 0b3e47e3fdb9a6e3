#include "voxel_cells.h"

#include <algorithm>

namespace mmturbox {
namespace {

constexpr int64_t kBlock = 256;

// Cells along one axis as values; -1 where outside or not finite. Rows are
// strided, so they are first brought together.
template <typename T>
inline __attribute__((always_inline)) void axis_cells(
    const T* points, int64_t number, int64_t channels, T lower, T size,
    int64_t cells, T* found) {
  T value[kBlock];
  for (int64_t i = 0; i < number; ++i) value[i] = points[i * channels];
  const T limit = static_cast<T>(cells);
  for (int64_t i = 0; i < number; ++i) {
    const T c = std::floor((value[i] - lower) / size);
    found[i] = (c >= 0) & (c < limit) ? c : T(-1);
  }
}

template <typename T>
inline __attribute__((always_inline)) void block_cells(
    const T* points, int64_t number, int64_t channels,
    const VoxelGrid<T>& grid, T (*xyz)[kBlock]) {
  for (int axis = 0; axis < 3; ++axis)
    axis_cells(points + axis, number, channels, grid.lower[axis],
               grid.size[axis], grid.cells[axis], xyz[axis]);
}

template <typename T>
inline __attribute__((always_inline)) void numbers_loop(
    const T* points, int64_t number, int64_t channels,
    const VoxelGrid<T>& grid, int64_t* cells) {
  T xyz[3][kBlock];
  for (int64_t from = 0; from < number; from += kBlock) {
    const int64_t n = std::min(kBlock, number - from);
    block_cells(points + from * channels, n, channels, grid, xyz);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t x = static_cast<int32_t>(xyz[0][i]);
      const int64_t y = static_cast<int32_t>(xyz[1][i]);
      const int64_t z = static_cast<int32_t>(xyz[2][i]);
      const int64_t cell = (z * grid.cells[1] + y) * grid.cells[0] + x;
      cells[from + i] = (x | y | z) < 0 ? -1 : cell;
    }
  }
}

template <typename T>
inline __attribute__((always_inline)) void coors_loop(
    const T* points, int64_t number, int64_t channels,
    const VoxelGrid<T>& grid, int32_t* zyx) {
  T xyz[3][kBlock];
  int32_t cell[3][kBlock];
  for (int64_t from = 0; from < number; from += kBlock) {
    const int64_t n = std::min(kBlock, number - from);
    block_cells(points + from * channels, n, channels, grid, xyz);
    for (int64_t i = 0; i < n; ++i) {
      const int32_t x = static_cast<int32_t>(xyz[0][i]);
      const int32_t y = static_cast<int32_t>(xyz[1][i]);
      const int32_t z = static_cast<int32_t>(xyz[2][i]);
      const int32_t outside = (x | y | z) >> 31;  // all ones or zero
      cell[0][i] = z | outside;
      cell[1][i] = y | outside;
      cell[2][i] = x | outside;
    }
    int32_t* to = zyx + from * 3;
    for (int64_t i = 0; i < n; ++i) {
      to[i * 3] = cell[0][i];
      to[i * 3 + 1] = cell[1][i];
      to[i * 3 + 2] = cell[2][i];
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
