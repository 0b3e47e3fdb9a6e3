// CPU kernels of mmturbox::sparse_{subm_table,conv_coords,conv_table}.
#include "../common/sparse_layers.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "radix_sort.h"

namespace mmturbox {
namespace {

constexpr int64_t kLines = 4096;       // of a task
constexpr int64_t kRowsAtOnce = 8192;  // of a task

// Rows by ascending key, equal ones in the order they have, and the lines
// they form along the last axis.
struct SortedRows {
  const int32_t* rows;
  int axes;
  std::vector<int64_t> keys;
  std::vector<int32_t> order;
  std::vector<int32_t> last;    // coordinate on the last axis
  std::vector<int64_t> prefix;  // of each line: the key without last axis
  std::vector<int64_t> begin;   // where lines begin, and the end

  SortedRows(const int32_t* data, int64_t count, const SparseGrid& grid)
      : rows(data), axes(grid.axes), keys(count), last(count) {
    torch::stable::parallel_for(0, count, 1 << 13,
                                [&](int64_t first, int64_t end) {
                                  for (int64_t i = first; i < end; ++i)
                                    keys[i] = grid.key_of_row(row(i));
                                });
    radix_sort(keys, num_cells(grid), &order);
    for (int64_t i = 0; i < count; ++i) {
      last[i] = row(order[i])[axes];
      if (keys[i] < 0) continue;
      const int64_t line = (keys[i] - last[i]) / grid.size[axes - 1];
      if (prefix.empty() || prefix.back() != line) {
        prefix.push_back(line);
        begin.push_back(i);
      }
    }
    begin.push_back(count);
  }

  int64_t size() const { return keys.size(); }
  int64_t lines() const { return prefix.size(); }
  const int32_t* row(int64_t i) const { return rows + i * (axes + 1); }

  // chain[i]: the next row with the coordinates of row i, or -1.
  void write_chain(int32_t* chain) const {
    for (int64_t i = 0; i < size(); ++i)
      chain[order[i]] = i + 1 < size() && keys[i] >= 0 &&
                                keys[i + 1] == keys[i]
                            ? order[i + 1]
                            : -1;
  }
};

// For the rows of lines [begin, end), the first of `targets` that each
// reaches: found(tap, row, target) for all taps that have the `group`-th
// choice on all axes but the last. What is reached ascends as the rows do, so
// that lines are walked once and so are the rows of two lines that meet.
template <typename F>
void walk(const SparseLayer& layer, const SortedRows& rows,
          const SortedRows& targets, int64_t group, int64_t begin,
          int64_t end, const F& found) {
  const int axis = layer.in.axes - 1;
  const int64_t taps = layer.kernel[axis];
  int64_t at = -1;
  for (int64_t line = begin; line < end; ++line) {
    const int64_t to =
        layer.reach(rows.row(rows.order[rows.begin[line]]), group, axis);
    if (to < 0) continue;
    if (at < 0)
      at = std::lower_bound(targets.prefix.begin(), targets.prefix.end(), to)
           - targets.prefix.begin();
    while (at < targets.lines() && targets.prefix[at] < to) ++at;
    if (at == targets.lines()) return;
    if (targets.prefix[at] != to) continue;
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t j = targets.begin[at];
      for (int64_t i = rows.begin[line]; i < rows.begin[line + 1]; ++i) {
        const int64_t c = layer.along(axis, rows.last[i], tap);
        if (c < 0) continue;
        while (j < targets.begin[at + 1] && targets.last[j] < c) ++j;
        if (j == targets.begin[at + 1]) break;
        if (targets.last[j] == c)
          found(group * taps + tap, rows.order[i], targets.order[j]);
      }
    }
  }
}

// Calls `walk` for all groups of taps, a few lines at a time.
template <typename F>
void walk_all(const SparseLayer& layer, const SortedRows& rows,
              const SortedRows& targets, const F& found) {
  const int64_t groups = layer.taps() / layer.kernel[layer.in.axes - 1];
  const int64_t chunks = (rows.lines() + kLines - 1) / kLines;
  torch::stable::parallel_for(
      0, groups * chunks, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i)
          walk(layer, rows, targets, i / chunks, i % chunks * kLines,
               std::min((i % chunks + 1) * kLines, rows.lines()), found);
      });
}

// (K, rows) of -1.
Tensor empty_table(const Tensor& like, int64_t K, int64_t rows) {
  Tensor table = torch::stable::new_empty(like, {K, rows});
  int32_t* data = table.mutable_data_ptr<int32_t>();
  torch::stable::parallel_for(0, K * rows, 1 << 16,
                              [&](int64_t begin, int64_t end) {
                                std::fill(data + begin, data + end, -1);
                              });
  return table;
}

std::tuple<Tensor, Tensor> sparse_subm_table(const Tensor& coords_in,
                                             int64_t batch_size, Sizes shape,
                                             Sizes kernel, Sizes dilation,
                                             bool) {
  const Tensor coords = torch::stable::contiguous(coords_in);
  const int64_t N = coords.size(0);
  const SparseLayer layer =
      make_subm_layer(batch_size, shape, kernel, dilation);
  const int64_t K = layer.taps();
  Tensor table = empty_table(coords, K, N);
  Tensor chain = torch::stable::new_empty(coords, {N});
  const SortedRows rows(coords.const_data_ptr<int32_t>(), N, layer.in);
  rows.write_chain(chain.mutable_data_ptr<int32_t>());
  int32_t* out = table.mutable_data_ptr<int32_t>();
  walk_all(layer, rows, rows, [&](int64_t k, int32_t row, int32_t target) {
    out[(K - 1 - k) * N + row] = target;
  });
  std::iota(out + K / 2 * N, out + (K / 2 + 1) * N, 0);
  return {table, chain};
}

// Appends the keys of what one row reaches.
void add_reached(const SparseLayer& layer, const int32_t* row,
                 std::vector<int64_t>& keys) {
  if (layer.in.key_of_row(row) < 0) return;
  const int axes = layer.in.axes;
  const size_t begin = keys.size();
  keys.push_back(row[0]);
  for (int a = 0; a < axes; ++a) {
    // Each key so far stands for one choice on the axes before this one.
    const size_t choices = keys.size() - begin;
    size_t found = 0;
    for (int64_t tap = layer.kernel[a] - 1; tap >= 0; --tap) {
      const int64_t to = layer.along(a, row[a + 1], tap);
      if (to < 0) continue;
      ++found;
      for (size_t i = 0; i < choices; ++i)
        keys.push_back(keys[begin + i] * layer.out.size[a] + to);
    }
    keys.erase(keys.begin() + begin, keys.begin() + begin + choices);
    if (found == 0) return;
  }
}

// Sorted keys of the cells that any of the rows reaches.
std::vector<int64_t> reached_keys(const SparseLayer& layer,
                                  const int32_t* rows, int64_t count) {
  const int64_t chunks = (count + kRowsAtOnce - 1) / kRowsAtOnce;
  std::vector<std::vector<int64_t>> parts(chunks);
  torch::stable::parallel_for(0, chunks, 1, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i)
      for (int64_t n = i * kRowsAtOnce;
           n < std::min((i + 1) * kRowsAtOnce, count); ++n)
        add_reached(layer, rows + n * (layer.in.axes + 1), parts[i]);
  });
  std::vector<int64_t> all;
  for (const auto& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  radix_sort(all, num_cells(layer.out), nullptr);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<Tensor> sparse_conv_coords(const Tensor& coords_in,
                                       int64_t batch_size, Sizes shape,
                                       Sizes out_shapes, Sizes kernel,
                                       Sizes stride, Sizes padding,
                                       Sizes dilation, bool transposed) {
  Tensor coords = torch::stable::contiguous(coords_in);
  const int64_t axes = shape.size();
  SparseGrid grid = make_grid(batch_size, shape.data(), axes);
  std::vector<Tensor> levels;
  for (int64_t i = 0; i < static_cast<int64_t>(kernel.size()); i += axes) {
    const SparseLayer layer = make_layer(
        grid, out_shapes.data() + i, kernel.data() + i, stride.data() + i,
        padding.data() + i, dilation.data() + i, transposed);
    const std::vector<int64_t> keys = reached_keys(
        layer, coords.const_data_ptr<int32_t>(), coords.size(0));
    const int64_t count = keys.size();
    coords = torch::stable::new_empty(coords, {count, axes + 1});
    int32_t* rows = coords.mutable_data_ptr<int32_t>();
    for (int64_t m = 0; m < count; ++m)
      layer.out.row(keys[m], rows + m * (axes + 1));
    levels.push_back(coords);
    grid = layer.out;
  }
  return levels;
}

std::tuple<Tensor, Tensor, Tensor> sparse_conv_table(
    const Tensor& coords_in, const Tensor& out_coords_in, int64_t batch_size,
    Sizes shape, Sizes out_shape, Sizes kernel, Sizes stride, Sizes padding,
    Sizes dilation, bool transposed, bool) {
  const Tensor coords = torch::stable::contiguous(coords_in);
  const Tensor out_coords = torch::stable::contiguous(out_coords_in);
  const int64_t N = coords.size(0), M = out_coords.size(0);
  const SparseLayer layer = make_layer(
      make_grid(batch_size, shape.data(), shape.size()), out_shape.data(),
      kernel.data(), stride.data(), padding.data(), dilation.data(),
      transposed);
  const int64_t K = layer.taps();
  Tensor table = empty_table(coords, K, M);
  Tensor reached = empty_table(coords, K, N);
  Tensor chain = torch::stable::new_empty(coords, {N});
  const SortedRows rows(coords.const_data_ptr<int32_t>(), N, layer.in);
  const SortedRows targets(out_coords.const_data_ptr<int32_t>(), M,
                           layer.out);
  rows.write_chain(chain.mutable_data_ptr<int32_t>());
  int32_t* down = table.mutable_data_ptr<int32_t>();
  int32_t* up = reached.mutable_data_ptr<int32_t>();
  walk_all(layer, rows, targets, [&](int64_t k, int32_t row, int32_t target) {
    up[k * N + row] = target;
    int32_t& first = down[k * M + target];
    if (first < 0) first = row;
  });
  return {table, reached, chain};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("sparse_subm_table", TORCH_BOX(&sparse_subm_table));
  m.impl("sparse_conv_coords", TORCH_BOX(&sparse_conv_coords));
  m.impl("sparse_conv_table", TORCH_BOX(&sparse_conv_table));
}

}  // namespace mmturbox
