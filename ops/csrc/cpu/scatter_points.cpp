// CPU kernels of mmturbox::voxel_reduce and its backward.
#include "../common/stable.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../common/scatter_points.h"
#include "compute.h"

namespace mmturbox {
namespace {

constexpr int64_t kAhead = 8;

// Voxels [begin, end): start[m] is the place of the first point in `order`.
// A thread owns its voxels and takes their points in order, so that sums do
// not depend on the number of threads.
template <typename T>
inline __attribute__((always_inline)) void reduce_loop(
    const T* feats, const int64_t* order, const int64_t* start,
    int64_t points, int64_t begin, int64_t end, int64_t C, int64_t mode,
    T* out) {
  for (int64_t m = begin; m < end; ++m) {
    T* to = out + m * C;
    const int64_t first = start[m], last = start[m + 1];
    for (int64_t j = first; j < last; ++j) {
      if (j + kAhead < points)
        __builtin_prefetch(feats + order[j + kAhead] * C);
      const T* row = feats + order[j] * C;
      if (j == first) {
        for (int64_t c = 0; c < C; ++c) to[c] = row[c];
      } else if (mode == kMax) {
        for (int64_t c = 0; c < C; ++c)
          to[c] = takes_over(row[c], to[c]) ? row[c] : to[c];
      } else {
        for (int64_t c = 0; c < C; ++c) to[c] += row[c];
      }
    }
    if (mode == kMean && last - first > 1) {
      const T divisor = static_cast<T>(last - first);
      for (int64_t c = 0; c < C; ++c) to[c] /= divisor;
    }
  }
}

// The gradient of a maximum goes to the first point that equals it; `open`
// says for which channels that one is still to come.
template <typename T>
inline __attribute__((always_inline)) void max_loop(
    const T* grad, const T* feats, const T* reduced, const int64_t* order,
    const int64_t* start, int64_t begin, int64_t end, int64_t C, char* open,
    T* out) {
  for (int64_t m = begin; m < end; ++m) {
    std::fill(open, open + C, char{1});
    for (int64_t j = start[m]; j < start[m + 1]; ++j) {
      const T* row = feats + order[j] * C;
      T* to = out + order[j] * C;
      for (int64_t c = 0; c < C; ++c) {
        const char mine = open[c] & is_maximum(row[c], reduced[m * C + c]);
        to[c] = mine ? grad[m * C + c] : T(0);
        open[c] &= !mine;
      }
    }
  }
}

// Points [begin, end) of a sum or a mean.
template <typename T>
inline __attribute__((always_inline)) void sum_loop(
    const T* grad, const int32_t* map, const int32_t* count, bool mean,
    int64_t begin, int64_t end, int64_t C, T* out) {
  for (int64_t i = begin; i < end; ++i) {
    T* to = out + i * C;
    if (map[i] < 0) {
      for (int64_t c = 0; c < C; ++c) to[c] = 0;
      continue;
    }
    const T divisor = mean ? static_cast<T>(count[map[i]]) : T(1);
    const T* from = grad + static_cast<int64_t>(map[i]) * C;
    for (int64_t c = 0; c < C; ++c) to[c] = from[c] / divisor;
  }
}

// Function templates cannot be cloned for instruction sets.
#define MMTURBOX_SCATTER_LOOPS(T)                                            \
  MMTURBOX_CLONES void reduce(const T* feats, const int64_t* order,          \
                              const int64_t* start, int64_t points,          \
                              int64_t begin, int64_t end, int64_t C,         \
                              int64_t mode, T* out) {                        \
    reduce_loop(feats, order, start, points, begin, end, C, mode, out);      \
  }                                                                          \
  MMTURBOX_CLONES void max_grads(const T* grad, const T* feats,              \
                                 const T* reduced, const int64_t* order,     \
                                 const int64_t* start, int64_t begin,        \
                                 int64_t end, int64_t C, char* open,         \
                                 T* out) {                                   \
    max_loop(grad, feats, reduced, order, start, begin, end, C, open, out);  \
  }                                                                          \
  MMTURBOX_CLONES void sum_grads(const T* grad, const int32_t* map,          \
                                 const int32_t* count, bool mean,            \
                                 int64_t begin, int64_t end, int64_t C,      \
                                 T* out) {                                   \
    sum_loop(grad, map, count, mean, begin, end, C, out);                    \
  }
MMTURBOX_SCATTER_LOOPS(float)
MMTURBOX_SCATTER_LOOPS(double)
#undef MMTURBOX_SCATTER_LOOPS

std::vector<int64_t> starts(const Tensor& count) {
  const int32_t* of_voxel = count.const_data_ptr<int32_t>();
  std::vector<int64_t> start(count.size(0) + 1, 0);
  for (int64_t m = 0; m < count.size(0); ++m)
    start[m + 1] = start[m] + of_voxel[m];
  return start;
}

Tensor voxel_reduce(const Tensor& feats_in, const Tensor& map,
                    const Tensor& count_in, const Tensor& order_in,
                    int64_t mode) {
  Tensor feats = compute_tensor(feats_in);
  Tensor order = torch::stable::contiguous(order_in);
  const int64_t C = feats.size(1), M = count_in.size(0);
  const std::vector<int64_t> start =
      starts(torch::stable::contiguous(count_in));
  Tensor out = torch::stable::new_empty(feats, {M, C});
  MMTURBOX_DISPATCH_FLOAT(feats.scalar_type(), "voxel_reduce", {
    const scalar_t* from = feats.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, M, 1024, [&](int64_t begin, int64_t end) {
      reduce(from, order.const_data_ptr<int64_t>(), start.data(), start[M],
             begin, end, C, mode, to);
    });
  });
  return in_type(out, feats_in.scalar_type());
}

Tensor voxel_reduce_backward(const Tensor& grad_in, const Tensor& feats_in,
                             const Tensor& reduced_in, const Tensor& map_in,
                             const Tensor& count_in, const Tensor& order_in,
                             int64_t mode) {
  Tensor grad = compute_tensor(grad_in);
  Tensor map = torch::stable::contiguous(map_in);
  Tensor count = torch::stable::contiguous(count_in);
  const int64_t N = map.size(0), C = grad.size(1), M = count.size(0);
  Tensor out = mode == kMax ? torch::stable::new_zeros(grad, {N, C})
                            : torch::stable::new_empty(grad, {N, C});
  Tensor feats, reduced, order;
  if (mode == kMax) {
    feats = compute_tensor(feats_in);
    reduced = compute_tensor(reduced_in);
    order = torch::stable::contiguous(order_in);
  }
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "voxel_reduce_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    if (mode == kMax) {
      const std::vector<int64_t> start = starts(count);
      const scalar_t* x = feats.const_data_ptr<scalar_t>();
      const scalar_t* best = reduced.const_data_ptr<scalar_t>();
      torch::stable::parallel_for(
          0, M, 1024, [&](int64_t begin, int64_t end) {
            std::vector<char> open(C);
            max_grads(from, x, best, order.const_data_ptr<int64_t>(),
                      start.data(), begin, end, C, open.data(), to);
          });
    } else {
      torch::stable::parallel_for(
          0, N, 2048, [&](int64_t begin, int64_t end) {
            sum_grads(from, map.const_data_ptr<int32_t>(),
                      count.const_data_ptr<int32_t>(), mode == kMean, begin,
                      end, C, to);
          });
    }
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("voxel_reduce", TORCH_BOX(&voxel_reduce));
  m.impl("voxel_reduce_backward", TORCH_BOX(&voxel_reduce_backward));
}

}  // namespace mmturbox
