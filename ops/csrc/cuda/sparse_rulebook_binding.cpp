// Bindings of sparse_rulebook.cu.
#include "sparse_rulebook.h"

#include <optional>
#include <tuple>
#include <vector>

#include "../common/sparse_layers.h"
#include "binding.h"

namespace mmturbox {
namespace {

// Keys of rows, ascending; the order is empty where they have it already.
struct SortedKeys {
  Tensor keys;
  std::optional<Tensor> order;

  SortedKeys(const SparseGrid& grid, const Tensor& coords, bool ascending,
             Stream stream) {
    keys = torch::stable::new_empty(coords, {coords.size(0)},
                                    ScalarType::Long);
    sparse_keys_cuda(grid, coords.const_data_ptr<int32_t>(), coords.size(0),
                     keys.mutable_data_ptr<int64_t>(), stream);
    if (ascending) return;
    auto [sorted, places] = stable_sort(keys);
    keys = sorted;
    order = places;
  }

  const int64_t* key_data() const { return keys.const_data_ptr<int64_t>(); }
  const int64_t* order_data() const {
    return order ? order->const_data_ptr<int64_t>() : nullptr;
  }

  Tensor chain(const Tensor& coords, Stream stream) const {
    Tensor out = torch::stable::new_empty(coords, {keys.size(0)});
    if (order)
      sparse_chain_cuda(key_data(), order_data(), keys.size(0),
                        out.mutable_data_ptr<int32_t>(), stream);
    else
      torch::stable::fill_(out, -1);
    return out;
  }
};

std::tuple<Tensor, Tensor> sparse_subm_table(const Tensor& coords_in,
                                             int64_t batch_size, Sizes shape,
                                             Sizes kernel, Sizes dilation,
                                             bool ascending) {
  const Launch launch(coords_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const int64_t N = coords.size(0);
  const SparseLayer layer =
      make_subm_layer(batch_size, shape, kernel, dilation);
  const SortedKeys sorted(layer.in, coords, ascending, launch);
  Tensor table = torch::stable::new_empty(coords, {layer.taps(), N});
  sparse_subm_lookup_cuda(layer, coords.const_data_ptr<int32_t>(),
                          sorted.order_data(), N, sorted.key_data(),
                          table.mutable_data_ptr<int32_t>(), launch);
  return {table, sorted.chain(coords, launch)};
}

// Sorted keys that rows of `coords` reach, and the running count of those
// that are new.
struct Reached {
  Tensor keys, place;
};

Reached reached(const SparseLevels& levels, const Tensor& coords,
                Stream stream) {
  const SparseLayer& layer = levels.layer[0];
  const int32_t* rows = coords.const_data_ptr<int32_t>();
  const int64_t N = coords.size(0);
  int64_t per_row = 1;
  bool by_taps = layer.transposed;
  for (int a = 0; a < layer.in.axes; ++a) {
    by_taps = by_taps || layer.dilation[a] != 1;
    per_row *= levels.most(a);
  }
  if (by_taps) {
    STD_TORCH_CHECK(levels.count == 1,
                    "sparse_conv_coords: a dilated or transposed layer "
                    "must be alone");
    per_row = layer.taps();
  }
  Tensor keys = torch::stable::new_empty(coords, {N * per_row},
                                         ScalarType::Long);
  if (by_taps)
    sparse_reached_cuda(layer, rows, N, keys.mutable_data_ptr<int64_t>(),
                        stream);
  else
    sparse_reached_cuda(levels, per_row, rows, N,
                        keys.mutable_data_ptr<int64_t>(), stream);
  keys = stable_sort(keys).first;
  Tensor first = torch::stable::new_empty(coords, {N * per_row});
  sparse_firsts_cuda(keys.const_data_ptr<int64_t>(), N * per_row,
                     first.mutable_data_ptr<int32_t>(), stream);
  return {keys, cumsum(first)};
}

// Each level is found from the first input, not from the level before it, so
// that all sizes are known after one read.
std::vector<Tensor> sparse_conv_coords(const Tensor& coords_in,
                                       int64_t batch_size, Sizes shape,
                                       Sizes out_shapes, Sizes kernel,
                                       Sizes stride, Sizes padding,
                                       Sizes dilation, bool transposed) {
  const Launch launch(coords_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const int64_t axes = shape.size(), count = kernel.size() / axes;
  STD_TORCH_CHECK(count <= kMaxLevels, "sparse_conv_coords: at most ",
                  kMaxLevels, " levels in a row");
  SparseLevels levels{};
  SparseGrid grid = make_grid(batch_size, shape.data(), axes);
  std::vector<Reached> found;
  Tensor sizes = torch::stable::new_zeros(coords, {count}, ScalarType::Long);
  for (int64_t l = 0; l < count; ++l) {
    const int64_t at = l * axes;
    levels.layer[l] = make_layer(
        grid, out_shapes.data() + at, kernel.data() + at, stride.data() + at,
        padding.data() + at, dilation.data() + at, transposed);
    levels.count = static_cast<int>(l + 1);
    grid = levels.layer[l].out;
    found.push_back(reached(levels, coords, launch));
    Tensor place = found.back().place;
    if (place.size(0) > 0) {
      Tensor size = torch::stable::narrow(sizes, 0, l, 1);
      torch::stable::copy_(
          size, torch::stable::narrow(place, 0, place.size(0) - 1, 1));
    }
  }
  const Tensor known = host_copy(sizes);
  std::vector<Tensor> out;
  for (int64_t l = 0; l < count; ++l) {
    const Reached& level = found[l];
    Tensor rows = torch::stable::new_empty(
        coords, {known.const_data_ptr<int64_t>()[l], axes + 1});
    sparse_rows_cuda(levels.layer[l].out, level.keys.const_data_ptr<int64_t>(),
                     level.place.const_data_ptr<int64_t>(),
                     level.keys.size(0), rows.mutable_data_ptr<int32_t>(),
                     launch);
    out.push_back(rows);
  }
  return out;
}

std::tuple<Tensor, Tensor, Tensor> sparse_conv_table(
    const Tensor& coords_in, const Tensor& out_coords_in, int64_t batch_size,
    Sizes shape, Sizes out_shape, Sizes kernel, Sizes stride, Sizes padding,
    Sizes dilation, bool transposed, bool ascending) {
  const Launch launch(coords_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const Tensor out_coords = torch::stable::contiguous(out_coords_in);
  const int64_t N = coords.size(0), M = out_coords.size(0);
  const SparseLayer layer = make_layer(
      make_grid(batch_size, shape.data(), shape.size()), out_shape.data(),
      kernel.data(), stride.data(), padding.data(), dilation.data(),
      transposed);
  const SortedKeys in(layer.in, coords, ascending, launch);
  const SortedKeys out(layer.out, out_coords, true, launch);
  Tensor table = torch::stable::new_empty(coords, {layer.taps(), M});
  Tensor reached = torch::stable::new_empty(coords, {layer.taps(), N});
  sparse_lookup_cuda(layer.inverse(), out_coords.const_data_ptr<int32_t>(),
                     nullptr, M, in.key_data(), in.order_data(), N,
                     table.mutable_data_ptr<int32_t>(), launch);
  sparse_lookup_cuda(layer, coords.const_data_ptr<int32_t>(),
                     in.order_data(), N, out.key_data(), nullptr, M,
                     reached.mutable_data_ptr<int32_t>(), launch);
  return {table, reached, in.chain(coords, launch)};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("sparse_subm_table", TORCH_BOX(&sparse_subm_table));
  m.impl("sparse_conv_coords", TORCH_BOX(&sparse_conv_coords));
  m.impl("sparse_conv_table", TORCH_BOX(&sparse_conv_table));
}

}  // namespace mmturbox
