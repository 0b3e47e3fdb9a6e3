// Launches of voxel_groups.cu. N points, M voxels; keys are int64, kNoKey
// for a point that is left out.
#pragma once

#include <cstdint>

#include "../common/voxel_grid.h"

namespace mmturbox {

using Stream = void*;

constexpr int64_t kNoKey = INT64_MAX;

// Keys of the points of one sample, which start at `first_key`.
template <typename T>
void point_keys_cuda(const T* points, int64_t number, int64_t channels,
                     VoxelGrid<T> grid, int64_t first_key, int64_t* keys,
                     Stream stream);

// extent[k] = max(extent[k], largest coordinate of column k + 1).
template <typename Index>
void row_extents_cuda(const Index* coors, int64_t rows, int64_t width,
                      int64_t* extent, Stream stream);

// Keys that sort as the rows do. `span` becomes their number, or -1 where
// that is more than 63 bits hold.
template <typename Index>
void row_keys_cuda(const Index* coors, int64_t rows, int64_t width,
                   const int64_t* extent, int64_t* keys, int64_t* span,
                   Stream stream);

// head[j] = 1 where a voxel's keys begin.
void segment_heads_cuda(const int64_t* keys, int64_t number, int32_t* head,
                        Stream stream);

// start[m] = where the keys of voxel m begin; start[M] = their number. `rank`
// is the running sum of the heads, `start` comes in filled with zeros.
void segment_starts_cuda(const int64_t* keys, const int64_t* rank,
                         int64_t number, int64_t* start, Stream stream);

// map[order[j]] = voxel of sorted key j, or -1.
void group_map_cuda(const int64_t* keys, const int64_t* order,
                    const int64_t* rank, int64_t number, int32_t* map,
                    Stream stream);

// Points of each voxel.
void group_counts_cuda(const int64_t* start, int64_t voxels, int32_t* count,
                       Stream stream);

// Sample, z, y, x of each voxel.
template <typename T>
void key_coors_cuda(const int64_t* keys, const int64_t* start,
                    int64_t voxels, VoxelGrid<T> grid, int32_t* coors,
                    Stream stream);

// Coordinates of each voxel's first point.
template <typename Index>
void first_rows_cuda(const Index* coors, const int64_t* order,
                     const int64_t* start, int64_t voxels, int64_t width,
                     Index* out, Stream stream);

}  // namespace mmturbox
