// CPU kernels of mmturbox::{hard,dynamic}_voxelize, and the cells of points
// (voxel_cells.h).
#include "../common/stable.h"
#include "../common/voxel_grid.h"

#include <algorithm>
#include <vector>

#include "compute.h"
#include "hard_voxels.h"
#include "voxel_cells.h"

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

namespace {

// Rows of kWidth values; any width if zero.
template <int64_t kWidth, typename T>
void fill_rows(const T* points, int64_t width, const HardVoxels& plan,
               size_t b, int64_t begin, int64_t end, int64_t max_points,
               T* voxels) {
  const int64_t C = kWidth ? kWidth : width;
  const SampleVoxels& sample = plan.samples[b];
  for (int64_t i = begin; i < end; ++i) {
    const int32_t voxel = plan.voxel[i], slot = plan.slot[i];
    if (voxel < 0) continue;
    T* room = voxels + (plan.voxel_begin[b] + voxel) * max_points * C;
    // The first point of a voxel clears what none will fill.
    if (slot == 0)
      std::fill(room + sample.count[voxel] * C, room + max_points * C, T(0));
    for (int64_t c = 0; c < C; ++c) room[slot * C + c] = points[i * C + c];
  }
}

template <typename T>
void fill(const T* points, int64_t width, const HardVoxels& plan,
          int64_t max_points, T* voxels) {
  const auto rows = width == 4   ? fill_rows<4, T>
                    : width == 5 ? fill_rows<5, T>
                                 : fill_rows<0, T>;
  for (size_t b = 0; b < plan.samples.size(); ++b)
    torch::stable::parallel_for(
        plan.point_begin[b], plan.point_begin[b + 1], 4096,
        [&](int64_t begin, int64_t end) {
          rows(points, width, plan, b, begin, end, max_points, voxels);
        });
}

std::tuple<Tensor, Tensor, Tensor> hard_voxelize(
    const Tensor& points_in, std::vector<int64_t> sizes,
    std::vector<double> voxel_size, std::vector<double> range,
    std::vector<int64_t> grid_size, int64_t max_points, int64_t max_voxels) {
  Tensor points = compute_tensor(points_in);
  const int64_t C = points.size(1);
  Tensor voxels, coors, count;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "hard_voxelize", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    const scalar_t* p = points.const_data_ptr<scalar_t>();
    const HardVoxels plan =
        hard_voxels(p, C, grid, sizes, max_points, max_voxels);
    const int64_t M = plan.voxel_begin.back();
    voxels = torch::stable::new_empty(points, {M, max_points, C});
    coors = torch::stable::new_empty(points, {M, 4}, ScalarType::Int);
    count = torch::stable::new_empty(points, {M}, ScalarType::Int);
    write_voxels(plan, grid, coors.mutable_data_ptr<int32_t>(),
                 count.mutable_data_ptr<int32_t>());
    fill(p, C, plan, max_points, voxels.mutable_data_ptr<scalar_t>());
  });
  return {in_type(voxels, points_in.scalar_type()), coors, count};
}

Tensor dynamic_voxelize(const Tensor& points_in,
                        std::vector<double> voxel_size,
                        std::vector<double> range,
                        std::vector<int64_t> grid_size) {
  Tensor points = compute_tensor(points_in);
  const int64_t N = points.size(0), C = points.size(1);
  Tensor coors = torch::stable::new_empty(points, {N, 3}, ScalarType::Int);
  int32_t* coor = coors.mutable_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "dynamic_voxelize", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    const scalar_t* p = points.const_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, N, 8192, [&](int64_t begin, int64_t end) {
      cell_coors(p + begin * C, end - begin, C, grid, coor + begin * 3);
    });
  });
  return coors;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("hard_voxelize", TORCH_BOX(&hard_voxelize));
  m.impl("dynamic_voxelize", TORCH_BOX(&dynamic_voxelize));
}

}  // namespace mmturbox
