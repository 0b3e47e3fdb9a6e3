// The sequential algorithms that mmcv's CPU kernels use for voxels.
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

// A matrix whose strides are known when it runs, as mmcv's accessors.
template <typename T>
struct Rows {
  T* data;
  int64_t row, column;
  T& at(int64_t i, int64_t k) const { return data[i * row + k * column]; }
};

// Cells of every point in reverse order of axes (z, y, x), or -1 in each.
// The number of axes is known when it runs, as in mmcv.
void all_coors(Rows<const float> points, int64_t number, int axes,
               const float* size, const float* range, const int32_t* grid,
               Rows<int32_t> coors) {
  std::vector<int32_t> found(axes);
  for (int64_t i = 0; i < number; ++i) {
    bool outside = false;
    for (int axis = 0; axis < axes && !outside; ++axis) {
      const int cell = static_cast<int>(
          std::floor((points.at(i, axis) - range[axis]) / size[axis]));
      outside = cell < 0 || cell >= grid[axis];
      found[axes - 1 - axis] = cell;
    }
    for (int axis = 0; axis < axes; ++axis)
      coors.at(i, axis) = outside ? -1 : found[axis];
  }
}

}  // namespace

extern "C" {

void dynamic_voxelize(const float* points, int64_t number, int64_t channels,
                      int axes, const float* size, const float* range,
                      const int32_t* grid, int32_t* coors) {
  all_coors({points, channels, 1}, number, axes, size, range, grid,
            {coors, axes, 1});
}

// `table` holds -1 for every cell of the grid. Returns the number of voxels;
// `voxels`, `coors` and `count` come in filled with zeros.
int64_t hard_voxelize(const float* points, int64_t number, int64_t channels,
                      int axes, const float* size, const float* range,
                      const int32_t* grid, int32_t* table, int64_t max_points,
                      int64_t max_voxels, float* voxels, int32_t* coors,
                      int32_t* count) {
  std::vector<int32_t> of_point(number * axes);
  all_coors({points, channels, 1}, number, axes, size, range, grid,
            {of_point.data(), axes, 1});
  int64_t found = 0;
  for (int64_t i = 0; i < number; ++i) {
    const int32_t* zyx = of_point.data() + i * axes;
    if (zyx[0] == -1) continue;
    int32_t& voxel =
        table[(static_cast<int64_t>(zyx[0]) * grid[1] + zyx[1]) * grid[0] +
              zyx[2]];
    if (voxel == -1) {
      if (found >= max_voxels) continue;
      voxel = static_cast<int32_t>(found++);
      for (int axis = 0; axis < axes; ++axis)
        coors[voxel * axes + axis] = zyx[axis];
    }
    if (count[voxel] >= max_points) continue;
    float* to = voxels + (voxel * max_points + count[voxel]++) * channels;
    for (int64_t c = 0; c < channels; ++c) to[c] = points[i * channels + c];
  }
  return found;
}

}  // extern "C"
