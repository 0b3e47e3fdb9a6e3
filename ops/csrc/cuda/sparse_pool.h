// Launch functions of sparse_pool.cu; pointers are on the device.
#pragma once

#include <cstdint>

#include "../common/sparse_rulebook.h"

namespace mmturbox {

using Stream = void*;

// Maximum of the rows that each of `outputs` rows reads; zero for none.
template <typename T>
void sparse_max_pool_cuda(const T* rows, int64_t channels,
                          const int32_t* table, int64_t taps,
                          int64_t outputs, const int32_t* chain, T* out,
                          Stream stream);

template <typename T>
void sparse_max_pool_grad_cuda(const T* rows, const T* output, const T* grad,
                               int64_t channels, const int32_t* reached,
                               int64_t taps, int64_t inputs, T* out,
                               Stream stream);

// owner[cell]: the lowest row in it, or -1.
void sparse_owner_cuda(const SparseGrid& grid, const int32_t* coords,
                       int64_t rows, int64_t cells, int32_t* owner,
                       Stream stream);

// The dense form from the rows, and rows from it.
template <typename T>
void sparse_to_dense_cuda(const T* rows, const int32_t* owner, int64_t batch,
                          int64_t channels, int64_t cells, T* out,
                          Stream stream);
template <typename T>
void sparse_from_dense_cuda(const SparseGrid& grid, const T* dense,
                            const int32_t* coords, const int32_t* owner,
                            int64_t rows, int64_t channels, int64_t cells,
                            T* out, Stream stream);

}  // namespace mmturbox
