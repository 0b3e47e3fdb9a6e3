// Coordinates of sparse tensors and what a convolution does to them; shared
// by the CPU and the CUDA kernels.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace mmturbox {

constexpr int kMaxAxes = 4;

// A batch of grids; cells are numbered with the last axis fastest.
struct SparseGrid {
  int axes;
  int64_t batch;
  int64_t size[kMaxAxes];

  // The number of a cell, -1 outside. `coords` holds the batch first.
  MMTURBOX_HD int64_t key(const int64_t* coords) const {
    if (coords[0] < 0 || coords[0] >= batch) return -1;
    int64_t number = coords[0];
    for (int a = 0; a < axes; ++a) {
      if (coords[a + 1] < 0 || coords[a + 1] >= size[a]) return -1;
      number = number * size[a] + coords[a + 1];
    }
    return number;
  }

  MMTURBOX_HD int64_t key_of_row(const int32_t* row) const {
    int64_t coords[kMaxAxes + 1] = {};
    for (int a = 0; a <= axes; ++a) coords[a] = row[a];
    return key(coords);
  }

  MMTURBOX_HD void row(int64_t number, int32_t* coords) const {
    for (int a = axes - 1; a >= 0; --a) {
      coords[a + 1] = static_cast<int32_t>(number % size[a]);
      number /= size[a];
    }
    coords[0] = static_cast<int32_t>(number);
  }
};

// One convolution between two grids. A submanifold one has `in` == `out`,
// stride 1, and a padding of half its kernel times its dilation.
struct SparseLayer {
  SparseGrid in, out;
  int64_t kernel[kMaxAxes], stride[kMaxAxes], padding[kMaxAxes],
      dilation[kMaxAxes];
  bool transposed;

  MMTURBOX_HD int64_t taps() const {
    int64_t product = 1;
    for (int a = 0; a < in.axes; ++a) product *= kernel[a];
    return product;
  }

  // The layer from outputs back to inputs.
  MMTURBOX_HD SparseLayer inverse() const {
    SparseLayer back = *this;
    back.in = out;
    back.out = in;
    back.transposed = !transposed;
    return back;
  }

  // Where tap `tap` of one axis takes coordinate `c`; -1 if nowhere.
  MMTURBOX_HD int64_t along(int a, int64_t c, int64_t tap) const {
    int64_t to;
    if (transposed) {
      to = c * stride[a] - padding[a] + tap * dilation[a];
    } else {
      to = c + padding[a] - tap * dilation[a];
      // Division of 64 bits is slow: not for the strides in use.
      if (stride[a] == 2) {
        if (to < 0 || to % 2 != 0) return -1;
        to /= 2;
      } else if (stride[a] != 1) {
        if (to < 0 || to % stride[a] != 0) return -1;
        to /= stride[a];
      }
    }
    return to >= 0 && to < out.size[a] ? to : -1;
  }

  // The key, on the first `axes` axes, of the output that input `row` reaches
  // by tap `k` of these axes; -1 if it reaches none. For a submanifold layer
  // taken with the taps reversed that is the cell which output `row` reads.
  MMTURBOX_HD int64_t reach(const int32_t* row, int64_t k, int axes) const {
    int tap[kMaxAxes] = {}, rest = static_cast<int>(k);
    for (int a = axes - 1; a >= 0; --a) {
      tap[a] = rest % static_cast<int>(kernel[a]);
      rest /= static_cast<int>(kernel[a]);
    }
    if (row[0] < 0 || row[0] >= in.batch) return -1;
    int64_t number = row[0];
    for (int a = 0; a < axes; ++a) {
      if (row[a + 1] < 0 || row[a + 1] >= in.size[a]) return -1;
      const int64_t to = along(a, row[a + 1], tap[a]);
      if (to < 0) return -1;
      number = number * out.size[a] + to;
    }
    return number;
  }
};

// Where the first of the ascending `keys` that is not less than `key` stands.
MMTURBOX_HD int64_t first_at_least(const int64_t* keys, int64_t count,
                                   int64_t key) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Strided layers one after another (dilation 1, not transposed), of which
// the first maps the input. What a cell reaches through them is a box.
constexpr int kMaxLevels = 8;
struct SparseLevels {
  int count;
  SparseLayer layer[kMaxLevels];

  // The most cells of the last grid that one cell reaches on an axis.
  MMTURBOX_HD int64_t most(int a) const {
    int64_t length = 1;
    for (int l = 0; l < count; ++l)
      length = (length + layer[l].kernel[a] - 2) / layer[l].stride[a] + 1;
    return length;
  }

  // The first cell of the last grid that coordinate `c` reaches on an axis,
  // and how many there are.
  MMTURBOX_HD int64_t reach(int a, int64_t c, int64_t* length) const {
    int64_t low = c, high = c;
    for (int l = 0; l < count && low <= high; ++l) {
      const SparseLayer& at = layer[l];
      const int64_t s = at.stride[a];
      low += at.padding[a] - at.kernel[a] + 1;
      low = low > 0 ? (low + s - 1) / s : 0;
      high = (high + at.padding[a]) / s;
      if (high >= at.out.size[a]) high = at.out.size[a] - 1;
    }
    *length = low <= high ? high - low + 1 : 0;
    return low;
  }
};

}  // namespace mmturbox
