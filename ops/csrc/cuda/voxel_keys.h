// Host side of what bindings of voxel kernels share.
#pragma once

#include <vector>

#include "../cpu/compute.h"
#include "binding.h"
#include "voxel_groups.h"

namespace mmturbox {

inline Tensor new_int64(const Tensor& like, int64_t number) {
  return torch::stable::new_empty(like, {number}, ScalarType::Long);
}

inline Tensor new_int32(const Tensor& like, int64_t number) {
  return torch::stable::new_empty(like, {number}, ScalarType::Int);
}

// Keys in order, who has them, and the running sum of the voxels' beginnings.
struct SortedKeys {
  Tensor keys, order, rank;
};

inline SortedKeys sort_keys(const Tensor& keys, Stream stream) {
  SortedKeys sorted;
  std::tie(sorted.keys, sorted.order) = stable_sort(keys);
  Tensor head = new_int32(keys, keys.size(0));
  segment_heads_cuda(sorted.keys.const_data_ptr<int64_t>(), keys.size(0),
                     head.mutable_data_ptr<int32_t>(), stream);
  sorted.rank = cumsum(head);
  return sorted;
}

// Keys of the points of a batch: sample, then cell.
template <typename T>
Tensor batch_keys(const Tensor& points, const std::vector<int64_t>& sizes,
                  const VoxelGrid<T>& grid, Stream stream) {
  const int64_t C = points.size(1);
  Tensor keys = new_int64(points, points.size(0));
  int64_t first = 0;
  for (size_t b = 0; b < sizes.size(); first += sizes[b++])
    point_keys_cuda(points.const_data_ptr<T>() + first * C, sizes[b], C, grid,
                    static_cast<int64_t>(b) * grid.total(),
                    keys.mutable_data_ptr<int64_t>() + first, stream);
  return keys;
}

}  // namespace mmturbox
