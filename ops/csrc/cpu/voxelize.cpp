// CPU kernels of mmturbox::{hard,dynamic}_voxelize.
#include "../common/stable.h"
#include "../common/voxel_grid.h"

#include <algorithm>
#include <vector>

#include "compute.h"
#include "hard_voxels.h"
#include "voxel_cells.h"

namespace mmturbox {
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
