// Bindings of voxelize.cu: hard and dynamic voxels, means of voxels.
#include "voxelize.h"

#include <tuple>
#include <vector>

#include "voxel_keys.h"

namespace mmturbox {
namespace {

// The M voxels of a batch, and which sorted points are theirs.
struct Voxels {
  SortedKeys sorted;
  Tensor start, rank, before, base;  // what `tables` points to
  VoxelTables tables;
  int64_t M = 0;
  Tensor voxel_of, first, count, coors;
};

template <typename T>
Voxels find_voxels(const Tensor& points, const std::vector<int64_t>& sizes,
                   const VoxelGrid<T>& grid, int64_t max_points,
                   int64_t max_voxels, Stream stream) {
  const int64_t N = points.size(0), B = sizes.size();
  Voxels v;
  v.sorted = sort_keys(batch_keys(points, sizes, grid, stream), stream);
  const int64_t* keys = v.sorted.keys.const_data_ptr<int64_t>();
  const int64_t* order = v.sorted.order.const_data_ptr<int64_t>();
  const int64_t* segment = v.sorted.rank.const_data_ptr<int64_t>();
  v.start = torch::stable::new_zeros(points, {N + 1}, ScalarType::Long);
  int64_t* start = v.start.mutable_data_ptr<int64_t>();
  segment_starts_cuda(keys, segment, N, start, stream);

  Tensor leader = torch::stable::new_zeros(points, {N}, ScalarType::Int);
  leaders_cuda(keys, order, N, leader.mutable_data_ptr<int32_t>(), stream);
  v.rank = cumsum(leader);
  const int64_t* rank = v.rank.const_data_ptr<int64_t>();
  v.before = new_int64(points, B);
  v.base = torch::stable::new_zeros(points, {B + 1}, ScalarType::Long);
  int64_t* before = v.before.mutable_data_ptr<int64_t>();
  int64_t* base = v.base.mutable_data_ptr<int64_t>();
  int64_t begin = 0;
  for (int64_t b = 0; b < B; begin += sizes[b++])
    sample_base_cuda(rank, begin, begin + sizes[b], b, max_voxels, before,
                     base, stream);
  v.M = read_int64(torch::stable::narrow(v.base, 0, B, 1));

  v.tables = {keys, order, segment,      start,      rank,      before,
              base, N,     grid.total(), max_points, max_voxels};
  v.voxel_of = new_int32(points, N);
  v.first = new_int64(points, v.M);
  v.count = new_int32(points, v.M);
  v.coors = torch::stable::new_empty(points, {v.M, 4}, ScalarType::Int);
  number_voxels_cuda(v.tables, grid, v.voxel_of.mutable_data_ptr<int32_t>(),
                     v.first.mutable_data_ptr<int64_t>(),
                     v.count.mutable_data_ptr<int32_t>(),
                     v.coors.mutable_data_ptr<int32_t>(), stream);
  return v;
}

std::tuple<Tensor, Tensor, Tensor> hard_voxelize(
    const Tensor& points_in, std::vector<int64_t> sizes,
    std::vector<double> voxel_size, std::vector<double> range,
    std::vector<int64_t> grid_size, int64_t max_points, int64_t max_voxels) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in);
  const int64_t C = points.size(1);
  Tensor out;
  Voxels v;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "hard_voxelize", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    v = find_voxels(points, sizes, grid, max_points, max_voxels, launch);
    out = torch::stable::new_empty(points, {v.M, max_points, C});
    fill_voxels_cuda(points.const_data_ptr<scalar_t>(), C, v.tables.order,
                     v.first.const_data_ptr<int64_t>(),
                     v.count.const_data_ptr<int32_t>(), v.M, max_points,
                     out.mutable_data_ptr<scalar_t>(), launch);
  });
  return {in_type(out, points_in.scalar_type()), v.coors, v.count};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> voxel_mean(
    const Tensor& points_in, std::vector<int64_t> sizes,
    std::vector<double> voxel_size, std::vector<double> range,
    std::vector<int64_t> grid_size, int64_t max_points, int64_t max_voxels) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in);
  const int64_t C = points.size(1);
  Tensor out, map = new_int32(points, points.size(0));
  Voxels v;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "voxel_mean", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    v = find_voxels(points, sizes, grid, max_points, max_voxels, launch);
    out = torch::stable::new_empty(points, {v.M, C});
    mean_voxels_cuda(points.const_data_ptr<scalar_t>(), C, v.tables.order,
                     v.first.const_data_ptr<int64_t>(),
                     v.count.const_data_ptr<int32_t>(), v.M,
                     out.mutable_data_ptr<scalar_t>(), launch);
    kept_map_cuda(v.tables, v.voxel_of.const_data_ptr<int32_t>(),
                  map.mutable_data_ptr<int32_t>(), launch);
  });
  return {in_type(out, points_in.scalar_type()), v.coors, v.count, map};
}

Tensor dynamic_voxelize(const Tensor& points_in,
                        std::vector<double> voxel_size,
                        std::vector<double> range,
                        std::vector<int64_t> grid_size) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in);
  const int64_t N = points.size(0);
  Tensor zyx = torch::stable::new_empty(points, {N, 3}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "dynamic_voxelize", {
    dynamic_coors_cuda(points.const_data_ptr<scalar_t>(), N, points.size(1),
                       make_grid<scalar_t>(voxel_size, range, grid_size),
                       zyx.mutable_data_ptr<int32_t>(), launch);
  });
  return zyx;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("hard_voxelize", TORCH_BOX(&hard_voxelize));
  m.impl("voxel_mean", TORCH_BOX(&voxel_mean));
  m.impl("dynamic_voxelize", TORCH_BOX(&dynamic_voxelize));
}

}  // namespace mmturbox
