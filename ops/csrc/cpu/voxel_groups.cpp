// CPU kernels of mmturbox::{voxel,point}_groups.
#include "../common/stable.h"
#include "../common/voxel_grid.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "compute.h"
#include "voxel_cells.h"
#include "voxel_order.h"

namespace mmturbox {
namespace {

// Coordinates in columns: the largest of each over rows without a negative
// entry, plus one.
template <typename Index>
std::vector<int64_t> extents(const Index* coors, int64_t rows,
                             int64_t width) {
  std::vector<int64_t> extent(width, 1);
  for (int64_t i = 0; i < rows; ++i) {
    const Index* row = coors + i * width;
    Index least = 0;
    for (int64_t k = 0; k < width; ++k) least = std::min(least, row[k]);
    if (least < 0) continue;
    for (int64_t k = 0; k < width; ++k)
      extent[k] = std::max<int64_t>(extent[k], int64_t{row[k]} + 1);
  }
  return extent;
}

// One number a row that sorts as the rows do; -1 for a negative entry.
template <typename Index>
std::vector<int64_t> row_numbers(const Index* coors, int64_t rows,
                                 int64_t width, int64_t* limit) {
  const std::vector<int64_t> extent = extents(coors, rows, width);
  *limit = 1;
  for (int64_t e : extent) {
    STD_TORCH_CHECK(!__builtin_mul_overflow(*limit, e, limit),
                    "voxel_groups: coordinates span more than 2^63 cells");
  }
  std::vector<int64_t> number(rows);
  torch::stable::parallel_for(0, rows, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Index* row = coors + i * width;
      Index least = 0;
      int64_t value = 0;
      for (int64_t k = 0; k < width; ++k) {
        least = std::min(least, row[k]);
        value = value * extent[k] + std::max<int64_t>(row[k], 0);
      }
      number[i] = least < 0 ? -1 : value;
    }
  });
  return number;
}

template <typename Index>
std::tuple<Tensor, Tensor, Tensor, Tensor> groups_of_rows(
    const Tensor& coors) {
  const int64_t N = coors.size(0), W = coors.size(1);
  const Index* rows = coors.const_data_ptr<Index>();
  int64_t limit;
  const std::vector<int64_t> number = row_numbers(rows, N, W, &limit);
  const VoxelGroups groups = group_points(number, limit, coors);
  const int64_t M = groups.first.size();
  Tensor out = torch::stable::new_empty(coors, {M, W});
  Index* to = out.mutable_data_ptr<Index>();
  for (int64_t m = 0; m < M; ++m)
    std::copy_n(rows + groups.first[m] * W, W, to + m * W);
  return {out, groups.map, groups.count, groups.order};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> voxel_groups(
    const Tensor& coors_in) {
  Tensor coors = torch::stable::contiguous(coors_in);
  return coors.scalar_type() == ScalarType::Int
             ? groups_of_rows<int32_t>(coors)
             : groups_of_rows<int64_t>(coors);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> point_groups(
    const Tensor& points_in, std::vector<int64_t> sizes,
    std::vector<double> voxel_size, std::vector<double> range,
    std::vector<int64_t> grid_size) {
  Tensor points = compute_tensor(points_in);
  const int64_t N = points.size(0), C = points.size(1), B = sizes.size();
  Tensor coors;
  VoxelGroups groups;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "point_groups", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    const int64_t cells = grid.total();
    std::vector<int64_t> number =
        cells_of(points.const_data_ptr<scalar_t>(), N, C, grid);
    int64_t i = 0;
    for (int64_t b = 0; b < B; ++b)
      for (const int64_t end = i + sizes[b]; i < end; ++i)
        if (number[i] >= 0) number[i] += b * cells;
    groups = group_points(number, B * cells, points);
    const int64_t M = groups.first.size();
    coors = torch::stable::new_empty(points, {M, 4}, ScalarType::Int);
    int32_t* coor = coors.mutable_data_ptr<int32_t>();
    for (int64_t m = 0; m < M; ++m) {
      const int64_t of_voxel = number[groups.first[m]];
      coor[m * 4] = static_cast<int32_t>(of_voxel / cells);
      grid.coors(of_voxel % cells, coor + m * 4 + 1);
    }
  });
  return {coors, groups.map, groups.count, groups.order};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("voxel_groups", TORCH_BOX(&voxel_groups));
  m.impl("point_groups", TORCH_BOX(&point_groups));
}

}  // namespace mmturbox
