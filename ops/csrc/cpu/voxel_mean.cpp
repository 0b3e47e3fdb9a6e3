// CPU kernel of mmturbox::voxel_mean.
#include "../common/stable.h"
#include "../common/voxel_grid.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "compute.h"
#include "hard_voxels.h"

namespace mmturbox {
namespace {

// Each thread owns a range of voxels and reads the points in order, so that
// sums do not depend on the number of threads.
template <typename T>
void sum_points(const T* points, int64_t C, const HardVoxels& plan, size_t b,
                T* means) {
  const SampleVoxels& sample = plan.samples[b];
  const int64_t M = sample.cell.size();
  T* sums = means + plan.voxel_begin[b] * C;
  const int64_t grain =
      std::max<int64_t>(1024, M / torch::stable::get_num_threads() + 1);
  torch::stable::parallel_for(0, M, grain, [&](int64_t begin, int64_t end) {
    std::fill(sums + begin * C, sums + end * C, T(0));
    for (int64_t i = plan.point_begin[b]; i < plan.point_begin[b + 1]; ++i) {
      const int64_t voxel = plan.voxel[i];
      if (voxel < begin || voxel >= end) continue;
      for (int64_t c = 0; c < C; ++c)
        sums[voxel * C + c] += points[i * C + c];
    }
    for (int64_t m = begin; m < end; ++m) {
      const T divisor = static_cast<T>(sample.count[m]);
      for (int64_t c = 0; c < C; ++c) sums[m * C + c] /= divisor;
    }
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> voxel_mean(
    const Tensor& points_in, std::vector<int64_t> sizes,
    std::vector<double> voxel_size, std::vector<double> range,
    std::vector<int64_t> grid_size, int64_t max_points, int64_t max_voxels) {
  Tensor points = compute_tensor(points_in);
  const int64_t N = points.size(0), C = points.size(1);
  Tensor means, coors, count;
  Tensor map = torch::stable::new_empty(points, {N}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "voxel_mean", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    const scalar_t* p = points.const_data_ptr<scalar_t>();
    const HardVoxels plan =
        hard_voxels(p, C, grid, sizes, max_points, max_voxels);
    const int64_t M = plan.voxel_begin.back();
    means = torch::stable::new_empty(points, {M, C});
    coors = torch::stable::new_empty(points, {M, 4}, ScalarType::Int);
    count = torch::stable::new_empty(points, {M}, ScalarType::Int);
    write_voxels(plan, grid, coors.mutable_data_ptr<int32_t>(),
                 count.mutable_data_ptr<int32_t>());
    int32_t* of_point = map.mutable_data_ptr<int32_t>();
    for (size_t b = 0; b < sizes.size(); ++b) {
      sum_points(p, C, plan, b, means.mutable_data_ptr<scalar_t>());
      const int32_t first = static_cast<int32_t>(plan.voxel_begin[b]);
      for (int64_t i = plan.point_begin[b]; i < plan.point_begin[b + 1]; ++i)
        of_point[i] = plan.voxel[i] < 0 ? -1 : plan.voxel[i] + first;
    }
  });
  return {in_type(means, points_in.scalar_type()), coors, count, map};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("voxel_mean", TORCH_BOX(&voxel_mean));
}

}  // namespace mmturbox
