// Which points make up which voxels, under both limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "../common/stable.h"
#include "../common/voxel_grid.h"
#include "cell_table.h"
#include "voxel_cells.h"

namespace mmturbox {

// Voxels of one sample in order of first occurrence.
struct SampleVoxels {
  std::vector<int64_t> cell;   // voxel -> cell number
  std::vector<int32_t> count;  // voxel -> points kept
};

struct HardVoxels {
  std::vector<int32_t> voxel;  // point -> voxel of its sample, or -1
  std::vector<int32_t> slot;   // point -> place among the voxel's points
  std::vector<SampleVoxels> samples;
  std::vector<int64_t> point_begin, voxel_begin;  // of each sample, and ends
};

// Points [begin, end) of one sample.
template <typename Key>
SampleVoxels assign_sample(const int64_t* cells, int64_t begin, int64_t end,
                           int64_t max_points, int64_t max_voxels,
                           HardVoxels* out) {
  constexpr int64_t kAhead = 16;
  SampleVoxels voxels;
  const int64_t most = std::min(end - begin, max_voxels);
  voxels.cell.reserve(most);
  voxels.count.reserve(most);
  CellTable<Key> table(most);
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) table.prefetch(static_cast<Key>(cells[i + kAhead]));
    out->voxel[i] = -1;
    if (cells[i] < 0) continue;
    int32_t& voxel = table[static_cast<Key>(cells[i])];
    if (voxel < 0) {
      if (static_cast<int64_t>(voxels.cell.size()) >= max_voxels) continue;
      voxel = static_cast<int32_t>(voxels.cell.size());
      voxels.cell.push_back(cells[i]);
      voxels.count.push_back(0);
    }
    int32_t& count = voxels.count[voxel];
    if (count >= max_points) continue;
    out->voxel[i] = voxel;
    out->slot[i] = count++;
  }
  return voxels;
}

template <typename T>
HardVoxels hard_voxels(const T* points, int64_t channels,
                       const VoxelGrid<T>& grid,
                       const std::vector<int64_t>& sizes, int64_t max_points,
                       int64_t max_voxels) {
  const int64_t B = sizes.size();
  HardVoxels out;
  out.point_begin.assign(B + 1, 0);
  out.voxel_begin.assign(B + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), out.point_begin.begin() + 1);
  const int64_t N = out.point_begin[B];
  out.voxel.resize(N);
  out.slot.resize(N);
  out.samples.resize(B);
  const std::vector<int64_t> cells = cells_of(points, N, channels, grid);
  const bool small = grid.total() < (int64_t{1} << 32);
  torch::stable::parallel_for(0, B, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      out.samples[b] =
          (small ? assign_sample<uint32_t>
                 : assign_sample<int64_t>)(cells.data(), out.point_begin[b],
                                           out.point_begin[b + 1], max_points,
                                           max_voxels, &out);
  });
  for (int64_t b = 0; b < B; ++b)
    out.voxel_begin[b + 1] = out.voxel_begin[b] + out.samples[b].cell.size();
  return out;
}

// Sample, z, y, x of each voxel, and its points.
template <typename T>
void write_voxels(const HardVoxels& plan, const VoxelGrid<T>& grid,
                  int32_t* coors, int32_t* count) {
  for (size_t b = 0; b < plan.samples.size(); ++b) {
    const SampleVoxels& sample = plan.samples[b];
    const int64_t first = plan.voxel_begin[b], number = sample.cell.size();
    torch::stable::parallel_for(
        0, number, 8192, [&](int64_t begin, int64_t end) {
          for (int64_t m = begin; m < end; ++m) {
            coors[(first + m) * 4] = static_cast<int32_t>(b);
            grid.coors(sample.cell[m], coors + (first + m) * 4 + 1);
          }
        });
    std::copy_n(sample.count.data(), number, count + first);
  }
}

}  // namespace mmturbox
