// CPU kernels of mmturbox::{hard,dynamic}_voxelize.
#include "../common/stable.h"
#include "../common/voxel_grid.h"

#include <vector>

#include "cell_table.h"
#include "compute.h"

namespace mmturbox {
namespace {

// Sizes and bounds are rounded to float32 first, as the callers' are.
template <typename T>
VoxelGrid<T> make_grid(const std::vector<double>& voxel_size,
                       const std::vector<double>& range,
                       const std::vector<int64_t>& cells) {
  VoxelGrid<T> grid;
  for (int axis = 0; axis < 3; ++axis) {
    grid.lower[axis] = static_cast<float>(range[axis]);
    grid.size[axis] = static_cast<float>(voxel_size[axis]);
    grid.cells[axis] = cells[axis];
  }
  return grid;
}

template <typename T>
std::vector<int64_t> cells_of(const T* points, int64_t num_points,
                              int64_t channels, const VoxelGrid<T>& grid) {
  std::vector<int64_t> cells(num_points);
  torch::stable::parallel_for(
      0, num_points, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          cells[i] = grid.cell(points + i * channels);
      });
  return cells;
}

// What each point becomes, and the voxels in order of first occurrence.
struct Assignment {
  std::vector<int64_t> target;  // point -> voxel * max_points + slot, or -1
  std::vector<int64_t> cell;    // voxel -> cell number
  std::vector<int32_t> sample;  // voxel -> sample of the batch
  std::vector<int32_t> count;   // voxel -> points kept
};

Assignment assign(const std::vector<int64_t>& cells, int64_t num_cells,
                  const std::vector<int64_t>& sizes, int64_t max_points,
                  int64_t max_voxels) {
  Assignment out;
  out.target.assign(cells.size(), -1);
  int64_t largest = 0;
  for (int64_t size : sizes) largest = size > largest ? size : largest;
  CellTable table(num_cells, largest);
  int64_t i = 0;
  for (size_t b = 0; b < sizes.size(); ++b) {
    if (b > 0) table.clear();
    const size_t limit = out.cell.size() + max_voxels;
    for (const int64_t end = i + sizes[b]; i < end; ++i) {
      if (cells[i] < 0) continue;
      int32_t& voxel = table[cells[i]];
      if (voxel < 0) {
        if (out.cell.size() >= limit) continue;
        voxel = static_cast<int32_t>(out.cell.size());
        out.cell.push_back(cells[i]);
        out.sample.push_back(static_cast<int32_t>(b));
        out.count.push_back(0);
      }
      if (out.count[voxel] < max_points)
        out.target[i] = voxel * max_points + out.count[voxel]++;
    }
  }
  return out;
}

template <typename T>
void fill(const T* points, int64_t channels, const Assignment& plan,
          T* voxels) {
  torch::stable::parallel_for(
      0, plan.target.size(), 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (plan.target[i] < 0) continue;
          for (int64_t c = 0; c < channels; ++c)
            voxels[plan.target[i] * channels + c] = points[i * channels + c];
        }
      });
}

std::tuple<Tensor, Tensor, Tensor> hard_voxelize(
    const Tensor& points_in, std::vector<int64_t> sizes,
    std::vector<double> voxel_size, std::vector<double> range,
    std::vector<int64_t> grid_size, int64_t max_points, int64_t max_voxels) {
  Tensor points = compute_tensor(points_in);
  const int64_t N = points.size(0), C = points.size(1);
  Tensor voxels, coors, count;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "hard_voxelize", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    const scalar_t* p = points.const_data_ptr<scalar_t>();
    const Assignment plan =
        assign(cells_of(p, N, C, grid),
               grid.cells[0] * grid.cells[1] * grid.cells[2], sizes,
               max_points, max_voxels);
    const int64_t M = plan.cell.size();
    voxels = torch::stable::new_zeros(points, {M, max_points, C});
    coors = torch::stable::new_empty(points, {M, 4}, ScalarType::Int);
    count = torch::stable::new_empty(points, {M}, ScalarType::Int);
    int32_t* coor = coors.mutable_data_ptr<int32_t>();
    for (int64_t m = 0; m < M; ++m) {
      coor[m * 4] = plan.sample[m];
      grid.coors(plan.cell[m], coor + m * 4 + 1);
      count.mutable_data_ptr<int32_t>()[m] = plan.count[m];
    }
    fill(p, C, plan, voxels.mutable_data_ptr<scalar_t>());
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
    torch::stable::parallel_for(0, N, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t cell = grid.cell(p + i * C);
        if (cell < 0)
          coor[i * 3] = coor[i * 3 + 1] = coor[i * 3 + 2] = -1;
        else
          grid.coors(cell, coor + i * 3);
      }
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
