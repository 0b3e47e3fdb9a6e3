// CUDA kernels that find which rows meet. Keys are sorted and searched by
// halving: rows are taken in the order of their keys, so that the threads of a
// warp walk the same path and read the same lines. There are no atomics.
// Bytes are those of 144,000 rows at stride 2 of BEVFusion, 27 taps.
#include "sparse_rulebook.h"

#include "each.h"

namespace mmturbox {
namespace {

// Reads 2.3 MB, writes 1.2 MB.
__global__ void keys_kernel(SparseGrid grid, const int32_t* rows,
                            int64_t count, int64_t* keys) {
  MMTURBOX_EACH(i, count) {
    keys[i] = grid.key_of_row(rows + i * (grid.axes + 1));
  }
}

// Reads 2.3 MB, writes 31 MB.
__global__ void taps_kernel(SparseLayer layer, int64_t taps,
                            const int32_t* rows, int64_t count,
                            int64_t* keys) {
  MMTURBOX_EACH(i, count * taps) {
    keys[i] = layer.reach(rows + i / taps * (layer.in.axes + 1), i % taps,
                          layer.in.axes);
  }
}

// Reads 2.3 MB, writes 9.2 MB: eight cells a row at most.
__global__ void boxes_kernel(SparseLevels levels, int64_t per_row,
                             const int32_t* rows, int64_t count,
                             int64_t* keys) {
  const SparseGrid& in = levels.layer[0].in;
  const SparseGrid& out = levels.layer[levels.count - 1].out;
  MMTURBOX_EACH(i, count * per_row) {
    const int32_t* row = rows + i / per_row * (in.axes + 1);
    int64_t rest = i % per_row, number = 0, unit = 1;
    bool inside = in.key_of_row(row) >= 0;
    for (int a = in.axes - 1; a >= 0; --a) {
      const int64_t most = levels.most(a);
      int64_t length = 0;
      const int64_t low = levels.reach(a, row[a + 1], &length);
      inside = inside && rest % most < length;
      number += (low + rest % most) * unit;
      unit *= out.size[a];
      rest /= most;
    }
    keys[i] = inside ? number + row[0] * unit : -1;
  }
}

// Reads 9.2 MB, writes 4.6 MB.
__global__ void firsts_kernel(const int64_t* keys, int64_t count,
                              int32_t* first) {
  MMTURBOX_EACH(i, count) {
    first[i] = keys[i] >= 0 && (i == 0 || keys[i - 1] != keys[i]);
  }
}

// Reads 18 MB, writes 2.3 MB.
__global__ void rows_kernel(SparseGrid grid, const int64_t* keys,
                            const int64_t* place, int64_t count,
                            int32_t* rows) {
  MMTURBOX_EACH(i, count) {
    const int64_t before = i == 0 ? 0 : place[i - 1];
    if (place[i] != before)
      grid.row(keys[i], rows + before * (grid.axes + 1));
  }
}

// Reads 2.3 MB, writes 0.6 MB.
__global__ void chain_kernel(const int64_t* keys, const int64_t* order,
                             int64_t count, int32_t* chain) {
  MMTURBOX_EACH(i, count) {
    const bool more =
        i + 1 < count && keys[i] >= 0 && keys[i + 1] == keys[i];
    chain[order[i]] = more ? static_cast<int32_t>(order[i + 1]) : -1;
  }
}

// Writes 16 MB; reads 1.2 MB of keys and 2.3 MB of rows from the cache, some
// 18 keys a lookup (70 M, of which a warp's coincide for the most part).
__global__ void lookup_kernel(SparseLayer layer, int64_t taps,
                              const int32_t* rows, const int64_t* order,
                              int64_t count, const int64_t* keys,
                              const int64_t* key_order, int64_t num_keys,
                              bool subm, int32_t* table) {
  MMTURBOX_EACH(i, count * taps) {
    const int64_t tap = i / count;
    const int64_t row = order ? order[i % count] : i % count;
    if (subm && tap == taps / 2) {
      table[tap * count + row] = static_cast<int32_t>(row);
      continue;
    }
    const int64_t key =
        layer.reach(rows + row * (layer.in.axes + 1),
                    subm ? taps - 1 - tap : tap, layer.in.axes);
    int32_t found = -1;
    if (key >= 0) {
      const int64_t at = first_at_least(keys, num_keys, key);
      if (at < num_keys && keys[at] == key)
        found = static_cast<int32_t>(key_order ? key_order[at] : at);
    }
    table[tap * count + row] = found;
  }
}

}  // namespace

void sparse_keys_cuda(const SparseGrid& grid, const int32_t* rows,
                      int64_t count, int64_t* keys, Stream stream) {
  MMTURBOX_LAUNCH(keys_kernel, blocks_for(count), kThreads, 0, stream, grid,
                  rows, count, keys);
}

void sparse_reached_cuda(const SparseLayer& layer, const int32_t* rows,
                         int64_t count, int64_t* keys, Stream stream) {
  MMTURBOX_LAUNCH(taps_kernel, blocks_for(count * layer.taps()), kThreads, 0,
                  stream, layer, layer.taps(), rows, count, keys);
}

void sparse_reached_cuda(const SparseLevels& levels, int64_t per_row,
                         const int32_t* rows, int64_t count, int64_t* keys,
                         Stream stream) {
  MMTURBOX_LAUNCH(boxes_kernel, blocks_for(count * per_row), kThreads, 0,
                  stream, levels, per_row, rows, count, keys);
}

void sparse_firsts_cuda(const int64_t* keys, int64_t count, int32_t* first,
                        Stream stream) {
  MMTURBOX_LAUNCH(firsts_kernel, blocks_for(count), kThreads, 0, stream, keys,
                  count, first);
}

void sparse_rows_cuda(const SparseGrid& grid, const int64_t* keys,
                      const int64_t* place, int64_t count, int32_t* rows,
                      Stream stream) {
  MMTURBOX_LAUNCH(rows_kernel, blocks_for(count), kThreads, 0, stream, grid,
                  keys, place, count, rows);
}

void sparse_chain_cuda(const int64_t* keys, const int64_t* order,
                       int64_t count, int32_t* chain, Stream stream) {
  MMTURBOX_LAUNCH(chain_kernel, blocks_for(count), kThreads, 0, stream, keys,
                  order, count, chain);
}

void sparse_lookup_cuda(const SparseLayer& layer, const int32_t* rows,
                        const int64_t* order, int64_t count,
                        const int64_t* keys, const int64_t* key_order,
                        int64_t num_keys, int32_t* table, Stream stream) {
  MMTURBOX_LAUNCH(lookup_kernel, blocks_for(count * layer.taps()), kThreads,
                  0, stream, layer, layer.taps(), rows, order, count, keys,
                  key_order, num_keys, false, table);
}

void sparse_subm_lookup_cuda(const SparseLayer& layer, const int32_t* rows,
                             const int64_t* order, int64_t count,
                             const int64_t* keys, int32_t* table,
                             Stream stream) {
  MMTURBOX_LAUNCH(lookup_kernel, blocks_for(count * layer.taps()), kThreads,
                  0, stream, layer, layer.taps(), rows, order, count, keys,
                  order, count, true, table);
}

}  // namespace mmturbox
