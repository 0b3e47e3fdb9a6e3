// Bindings of voxel_groups.cu.
#include "voxel_groups.h"

#include <tuple>
#include <vector>

#include "voxel_keys.h"

namespace mmturbox {
namespace {

using Groups = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Map and counts of M voxels, and where their keys begin.
struct Tables {
  Tensor map, count, start;
};

Tables make_tables(const SortedKeys& sorted, int64_t M, Stream stream) {
  const int64_t N = sorted.keys.size(0);
  const int64_t* keys = sorted.keys.const_data_ptr<int64_t>();
  const int64_t* rank = sorted.rank.const_data_ptr<int64_t>();
  Tables tables;
  tables.start = torch::stable::new_zeros(sorted.keys, {M + 1});
  tables.map = new_int32(sorted.keys, N);
  tables.count = new_int32(sorted.keys, M);
  int64_t* start = tables.start.mutable_data_ptr<int64_t>();
  segment_starts_cuda(keys, rank, N, start, stream);
  group_map_cuda(keys, sorted.order.const_data_ptr<int64_t>(), rank, N,
                 tables.map.mutable_data_ptr<int32_t>(), stream);
  group_counts_cuda(start, M, tables.count.mutable_data_ptr<int32_t>(),
                    stream);
  return tables;
}

template <typename Index>
Groups groups_of_rows(const Tensor& coors, Stream stream) {
  const int64_t N = coors.size(0), W = coors.size(1);
  const Index* rows = coors.const_data_ptr<Index>();
  Tensor extent = torch::stable::full({W}, 1., ScalarType::Long,
                                      std::nullopt, coors.device());
  Tensor keys = new_int64(coors, N);
  // What the host reads: the number of voxels and the span of the keys.
  Tensor sizes = torch::stable::new_zeros(coors, {2}, ScalarType::Long);
  int64_t* found = sizes.mutable_data_ptr<int64_t>();
  row_extents_cuda(rows, N, W, extent.mutable_data_ptr<int64_t>(), stream);
  row_keys_cuda(rows, N, W, extent.const_data_ptr<int64_t>(),
                keys.mutable_data_ptr<int64_t>(), found + 1, stream);
  SortedKeys sorted = sort_keys(keys, stream);
  if (N > 0) {
    Tensor number = torch::stable::narrow(sizes, 0, 0, 1);
    torch::stable::copy_(number,
                         torch::stable::narrow(sorted.rank, 0, N - 1, 1));
  }
  const Tensor read = host_copy(sizes);
  const int64_t M = read.const_data_ptr<int64_t>()[0];
  STD_TORCH_CHECK(read.const_data_ptr<int64_t>()[1] > 0,
                  "voxel_groups: coordinates span more than 2^63 cells");
  const Tables tables = make_tables(sorted, M, stream);
  Tensor out = torch::stable::new_empty(coors, {M, W});
  first_rows_cuda(rows, sorted.order.const_data_ptr<int64_t>(),
                  tables.start.const_data_ptr<int64_t>(), M, W,
                  out.mutable_data_ptr<Index>(), stream);
  return {out, tables.map, tables.count, sorted.order};
}

Groups voxel_groups(const Tensor& coors_in) {
  const Launch launch(coors_in);
  Tensor coors = torch::stable::contiguous(coors_in);
  return coors.scalar_type() == ScalarType::Int
             ? groups_of_rows<int32_t>(coors, launch)
             : groups_of_rows<int64_t>(coors, launch);
}

Groups point_groups(const Tensor& points_in, std::vector<int64_t> sizes,
                    std::vector<double> voxel_size, std::vector<double> range,
                    std::vector<int64_t> grid_size) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in);
  const int64_t N = points.size(0);
  Tensor coors;
  Tables tables;
  SortedKeys sorted;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "point_groups", {
    const auto grid = make_grid<scalar_t>(voxel_size, range, grid_size);
    sorted = sort_keys(batch_keys(points, sizes, grid, launch), launch);
    const int64_t M =
        N == 0 ? 0
               : read_int64(torch::stable::narrow(sorted.rank, 0, N - 1, 1));
    tables = make_tables(sorted, M, launch);
    coors = torch::stable::new_empty(points, {M, 4}, ScalarType::Int);
    key_coors_cuda(sorted.keys.const_data_ptr<int64_t>(),
                   tables.start.const_data_ptr<int64_t>(), M, grid,
                   coors.mutable_data_ptr<int32_t>(), launch);
  });
  return {coors, tables.map, tables.count, sorted.order};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("voxel_groups", TORCH_BOX(&voxel_groups));
  m.impl("point_groups", TORCH_BOX(&point_groups));
}

}  // namespace mmturbox
