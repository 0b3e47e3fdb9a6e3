// Launch functions of gaussian_splat.cu; pointers are on the device.
#pragma once

#include <cstdint>

#include "../common/gaussian_splat.h"

namespace mmturbox {

using Stream = void*;

struct SplatShape {
  int64_t batch, gaussians, columns;  // `columns` of the table
};

// Columns of the table that a block sums.
constexpr int64_t kSplatColumns = 20;

MMTURBOX_HD int64_t splat_chunks(int64_t columns) {
  return (columns + kSplatColumns - 1) / kSplatColumns;
}

template <typename T>
void splat_boxes_cuda(const T* means, const int32_t* radii, int64_t count,
                      const SplatGrid& grid, SplatBox* boxes, Stream stream);

// `rest` is null where the product is not wanted.
template <typename T>
void splat_cuda(const T* means, const T* table, const T* precisions,
                const SplatBox* boxes, const SplatShape& shape,
                const SplatGrid& grid, T* sums, T* rest, Stream stream);

// `moments` has (chunks, batch * gaussians, 9) entries, to be summed over the
// chunks. `rest` is null where there is no product.
template <typename T>
void splat_backward_cuda(const T* grad, const T* grad_rest, const T* rest,
                         const T* means, const T* table, const T* precisions,
                         const SplatBox* boxes, const SplatShape& shape,
                         const SplatGrid& grid, T* grad_table, T* moments,
                         Stream stream);

}  // namespace mmturbox
