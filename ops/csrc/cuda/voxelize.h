// Launches of voxelize.cu. N points, sorted by key; M voxels kept.
#pragma once

#include <cstdint>

#include "voxel_groups.h"

namespace mmturbox {

// z, y, x of each point, or -1 three times.
template <typename T>
void dynamic_coors_cuda(const T* points, int64_t number, int64_t channels,
                        VoxelGrid<T> grid, int32_t* zyx, Stream stream);

// leader[order[j]] = 1 where a voxel's keys begin; comes in filled with
// zeros. Stable sorting makes a voxel's first point its leader.
void leaders_cuda(const int64_t* keys, const int64_t* order, int64_t number,
                  int32_t* leader, Stream stream);

// For points [begin, end) of sample b: before[b] = leaders of samples before
// it, base[b + 1] = voxels kept up to its end. `rank` is the running sum of
// the leaders, base[0] is 0.
void sample_base_cuda(const int64_t* rank, int64_t begin, int64_t end,
                      int64_t b, int64_t max_voxels, int64_t* before,
                      int64_t* base, Stream stream);

// Where things are in the sorted points.
struct VoxelTables {
  const int64_t *keys, *order;
  const int64_t* segment;  // running sum of the beginnings
  const int64_t* start;    // of each segment, and their end
  const int64_t* rank;     // running sum of the leaders, by point
  const int64_t *before, *base;
  int64_t number, cells, max_points, max_voxels;
};

// Voxel of each segment or -1; first sorted point, points kept, sample and
// z, y, x of each voxel.
template <typename T>
void number_voxels_cuda(VoxelTables tables, VoxelGrid<T> grid,
                        int32_t* voxel_of, int64_t* first, int32_t* count,
                        int32_t* coors, Stream stream);

// (M, P, C): the points kept of each voxel, zero beyond.
template <typename T>
void fill_voxels_cuda(const T* points, int64_t channels,
                      const int64_t* order, const int64_t* first,
                      const int32_t* count, int64_t voxels,
                      int64_t max_points, T* out, Stream stream);

// (M, C): the mean of the points kept of each voxel.
template <typename T>
void mean_voxels_cuda(const T* points, int64_t channels,
                      const int64_t* order, const int64_t* first,
                      const int32_t* count, int64_t voxels, T* out,
                      Stream stream);

// map[order[j]] = voxel that sorted point j is kept in, or -1.
void kept_map_cuda(VoxelTables tables, const int32_t* voxel_of, int32_t* map,
                   Stream stream);

}  // namespace mmturbox
