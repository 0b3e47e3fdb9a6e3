// Launch functions of bev_pool.cu; pointers are on the device.
#pragma once

#include <cstdint>

#include "../common/bev_pool.h"

namespace mmturbox {

using Stream = void*;

// What the tensors of BEV pooling have in common. Rows of the output are
// cells of a sample, sample after sample.
struct BevPoolShape {
  int64_t images, images_per_sample, depth, height, width, channels;
  int64_t num_cells;  // of one sample
};

template <typename T>
void bev_cells_cuda(const T* points, int64_t count, const BevGrid& grid,
                    int32_t* cells, Stream stream);

// Sort keys: the output row of each point, the number of rows for outside.
void bev_pool_keys_cuda(const int32_t* cells, int64_t count,
                        int64_t per_sample, int64_t num_cells, int64_t rows,
                        int32_t* keys, Stream stream);

// Fills the lists from the sorted keys and their order.
void bev_pool_lists_cuda(const int32_t* keys, const int64_t* order,
                         int64_t count, int64_t per_image, int64_t per_map,
                         int64_t rows, int32_t* points, int32_t* pixels,
                         int32_t* starts, Stream stream);

template <typename T>
void bev_pool_cuda(const T* depth, const T* context, const int32_t* points,
                   const int32_t* pixels, const int32_t* starts, int64_t rows,
                   int64_t channels, T* out, Stream stream);

// The gradient of depth is in the type that sums have: float32 or float64.
template <typename T, typename Sum>
void bev_pool_backward_cuda(const T* grad, const T* depth, const T* context,
                            const int32_t* cells, const BevPoolShape& shape,
                            Sum* grad_depth, T* grad_context, Stream stream);

}  // namespace mmturbox
