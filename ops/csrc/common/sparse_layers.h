// Grids and layers from the lists of sizes that operators take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sparse_rulebook.h"

namespace mmturbox {

using Sizes = std::vector<int64_t>;

inline SparseGrid make_grid(int64_t batch, const int64_t* size,
                            int64_t axes) {
  SparseGrid grid{static_cast<int>(axes), batch, {}};
  std::copy_n(size, axes, grid.size);
  return grid;
}

inline int64_t num_cells(const SparseGrid& grid) {
  int64_t count = grid.batch;
  for (int a = 0; a < grid.axes; ++a) count *= grid.size[a];
  return count;
}

inline SparseLayer make_layer(const SparseGrid& in, const int64_t* out_size,
                              const int64_t* kernel, const int64_t* stride,
                              const int64_t* padding, const int64_t* dilation,
                              bool transposed) {
  SparseLayer layer{in, make_grid(in.batch, out_size, in.axes),
                    {}, {}, {}, {}, transposed};
  std::copy_n(kernel, in.axes, layer.kernel);
  std::copy_n(stride, in.axes, layer.stride);
  std::copy_n(padding, in.axes, layer.padding);
  std::copy_n(dilation, in.axes, layer.dilation);
  return layer;
}

inline SparseLayer make_subm_layer(int64_t batch, const Sizes& shape,
                                   const Sizes& kernel,
                                   const Sizes& dilation) {
  const Sizes stride(shape.size(), 1);
  Sizes padding(shape.size());
  for (size_t a = 0; a < shape.size(); ++a)
    padding[a] = kernel[a] / 2 * dilation[a];
  return make_layer(make_grid(batch, shape.data(), shape.size()),
                    shape.data(), kernel.data(), stride.data(),
                    padding.data(), dilation.data(), false);
}

}  // namespace mmturbox
