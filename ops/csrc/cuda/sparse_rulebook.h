// Launch functions of sparse_rulebook.cu; pointers are on the device.
#pragma once

#include <cstdint>

#include "../common/sparse_rulebook.h"

namespace mmturbox {

using Stream = void*;

// Key of each row, -1 outside of the grid.
void sparse_keys_cuda(const SparseGrid& grid, const int32_t* rows,
                      int64_t count, int64_t* keys, Stream stream);

// Keys of all that the rows reach, `per_row` a row, filled up with -1: taps
// of one layer, or cells of the last of a few levels.
void sparse_reached_cuda(const SparseLayer& layer, const int32_t* rows,
                         int64_t count, int64_t* keys, Stream stream);
void sparse_reached_cuda(const SparseLevels& levels, int64_t per_row,
                         const int32_t* rows, int64_t count, int64_t* keys,
                         Stream stream);

// From ascending keys: 1 where a new one >= 0 begins; then its row at its
// place in the running sum of these.
void sparse_firsts_cuda(const int64_t* keys, int64_t count, int32_t* first,
                        Stream stream);
void sparse_rows_cuda(const SparseGrid& grid, const int64_t* keys,
                      const int64_t* place, int64_t count, int32_t* rows,
                      Stream stream);

// chain[row]: the next row with its key, or -1.
void sparse_chain_cuda(const int64_t* keys, const int64_t* order,
                       int64_t count, int32_t* chain, Stream stream);

// table[tap][row]: which of the ascending `keys`, or of the `key_order` they
// had before, the row reaches; -1 if none. Rows are taken in `order`. Either
// order may be nullptr.
void sparse_lookup_cuda(const SparseLayer& layer, const int32_t* rows,
                        const int64_t* order, int64_t count,
                        const int64_t* keys, const int64_t* key_order,
                        int64_t num_keys, int32_t* table, Stream stream);

// The same among the rows themselves: what each reads, and itself by the
// middle tap.
void sparse_subm_lookup_cuda(const SparseLayer& layer, const int32_t* rows,
                             const int64_t* order, int64_t count,
                             const int64_t* keys, int32_t* table,
                             Stream stream);

}  // namespace mmturbox
