// Grid cells of many points at once; voxelize.cpp has the loops.
#pragma once

#include <cstdint>
#include <vector>

#include "../common/stable.h"
#include "../common/voxel_grid.h"

namespace mmturbox {

// Cell number of each point (rows of `channels` values), -1 where outside.
void cell_numbers(const float* points, int64_t number, int64_t channels,
                  const VoxelGrid<float>& grid, int64_t* cells);
void cell_numbers(const double* points, int64_t number, int64_t channels,
                  const VoxelGrid<double>& grid, int64_t* cells);

// z, y, x of each point, -1 three times where outside.
void cell_coors(const float* points, int64_t number, int64_t channels,
                const VoxelGrid<float>& grid, int32_t* zyx);
void cell_coors(const double* points, int64_t number, int64_t channels,
                const VoxelGrid<double>& grid, int32_t* zyx);

template <typename T>
std::vector<int64_t> cells_of(const T* points, int64_t number,
                              int64_t channels, const VoxelGrid<T>& grid) {
  std::vector<int64_t> cells(number);
  torch::stable::parallel_for(
      0, number, 8192, [&](int64_t begin, int64_t end) {
        cell_numbers(points + begin * channels, end - begin, channels, grid,
                     cells.data() + begin);
      });
  return cells;
}

}  // namespace mmturbox
