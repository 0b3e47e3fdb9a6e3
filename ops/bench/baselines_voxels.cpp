// The sequential algorithms that mmcv's CPU kernels use for voxels.
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

// z, y, x of every point, or -1 three times; mmcv counts cells by rounding.
void all_coors(const float* points, int64_t number, int64_t channels,
               const float* size, const float* range, const int32_t* grid,
               int32_t* coors) {
  for (int64_t i = 0; i < number; ++i) {
    bool outside = false;
    int32_t row[3];
    for (int axis = 0; axis < 3 && !outside; ++axis) {
      const int c = static_cast<int>(
          std::floor((points[i * channels + axis] - range[axis]) /
                     size[axis]));
      outside = c < 0 || c >= grid[axis];
      row[2 - axis] = c;
    }
    for (int axis = 0; axis < 3; ++axis)
      coors[i * 3 + axis] = outside ? -1 : row[axis];
  }
}

}  // namespace

extern "C" {

void dynamic_voxelize(const float* points, int64_t number, int64_t channels,
                      const float* size, const float* range,
                      const int32_t* grid, int32_t* coors) {
  all_coors(points, number, channels, size, range, grid, coors);
}

// A table over the whole grid says which voxel a cell is. Returns the number
// of voxels; `voxels` comes in filled with zeros, `coors` and `count` too.
int64_t hard_voxelize(const float* points, int64_t number, int64_t channels,
                      const float* size, const float* range,
                      const int32_t* grid, int64_t max_points,
                      int64_t max_voxels, float* voxels, int32_t* coors,
                      int32_t* count) {
  std::vector<int32_t> of_point(number * 3);
  all_coors(points, number, channels, size, range, grid, of_point.data());
  const int64_t cells = static_cast<int64_t>(grid[0]) * grid[1] * grid[2];
  std::vector<int32_t> table(cells, -1);
  int64_t found = 0;
  for (int64_t i = 0; i < number; ++i) {
    const int32_t* zyx = of_point.data() + i * 3;
    if (zyx[0] == -1) continue;
    int32_t& voxel =
        table[(static_cast<int64_t>(zyx[0]) * grid[1] + zyx[1]) * grid[0] +
              zyx[2]];
    if (voxel == -1) {
      if (found >= max_voxels) continue;
      voxel = static_cast<int32_t>(found++);
      for (int axis = 0; axis < 3; ++axis)
        coors[voxel * 3 + axis] = zyx[axis];
    }
    if (count[voxel] >= max_points) continue;
    float* to = voxels + (voxel * max_points + count[voxel]++) * channels;
    for (int64_t c = 0; c < channels; ++c) to[c] = points[i * channels + c];
  }
  return found;
}

}  // extern "C"
