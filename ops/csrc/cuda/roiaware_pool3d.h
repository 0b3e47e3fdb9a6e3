// Launches of roiaware_pool3d.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

template <typename T>
struct RoiCells {
  const T *rois, *points;
  int64_t num_rois, num_points, out_x, out_y, out_z;
};

// counts[r] = points in box r.
template <typename T>
void roiaware_count_cuda(const RoiCells<T>& cells, int64_t* counts,
                         Stream stream);
// The points of box r, in their order, from ends[r - 1] on: their cells (of
// all boxes) in `keys` and the points in `points`.
template <typename T>
void roiaware_list_cuda(const RoiCells<T>& cells, const int64_t* ends,
                        int64_t* keys, int32_t* points, Stream stream);
// members[i] = points[order[i]]; starts[v] = the first i whose key is v or
// above, for v up to and with num_cells.
void roiaware_index_cuda(const int64_t* keys, const int64_t* order,
                         const int32_t* points, int64_t count,
                         int64_t num_cells, int64_t* starts,
                         int32_t* members, Stream stream);

// What the cells of a pooling hold; `limit` members of a cell count.
struct RoiMembers {
  const int64_t* starts;
  const int32_t* members;
  int64_t cells, channels, limit;
};

// A maximum where `argmax` is given, else an average.
template <typename T>
void roiaware_pool_cuda(const T* features, const RoiMembers& members, T* out,
                        int32_t* argmax, Stream stream);
// Adds to `out`.
template <typename T>
void roiaware_pool_backward_cuda(const T* grad, const RoiMembers& members,
                                 const int32_t* argmax, T* out,
                                 Stream stream);

}  // namespace mmturbox
