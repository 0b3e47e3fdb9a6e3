// CPU kernels of mmturbox::gather_points, group_points_stacked, and their
// backward.
#include <algorithm>

#include "../common/stable.h"
#include "../common/stacked_rows.h"
#include "compute.h"

namespace mmturbox {
namespace {

// Copies of features: only their width matters.
#define MMTURBOX_DISPATCH_WIDTH(TENSOR, NAME, ...)                          \
  do {                                                                      \
    const auto width = (TENSOR).element_size();                             \
    if (width == 2) {                                                       \
      using scalar_t = uint16_t;                                            \
      __VA_ARGS__                                                           \
    } else if (width == 4) {                                                \
      using scalar_t = uint32_t;                                            \
      __VA_ARGS__                                                           \
    } else {                                                                \
      STD_TORCH_CHECK(width == 8, NAME ": unexpected dtype");               \
      using scalar_t = uint64_t;                                            \
      __VA_ARGS__                                                           \
    }                                                                       \
  } while (0)

template <typename T>
inline __attribute__((always_inline)) void gather_loop(const T* row,
                                                       const int32_t* index,
                                                       int64_t n, int64_t num,
                                                       T* out) {
  for (int64_t i = 0; i < num; ++i) {
    const uint32_t at = static_cast<uint32_t>(index[i]);
    out[i] = at < static_cast<uint64_t>(n) ? row[at] : T(0);
  }
}

// Rows that are worked on at once: a sum that waits for the one before, as
// where an index repeats, leaves time for those of the other rows.
constexpr int64_t kRows = 8;

// Adds `count` rows of `num` values to rows of n places.
template <typename T>
void scatter_rows(const T* grad, const int32_t* index, int64_t n, int64_t num,
                  int64_t count, T* out) {
  for (int64_t i = 0; i < num; ++i) {
    const int64_t at = index[i];
    if (at < 0 || at >= n) continue;
    if (count == kRows)
      for (int64_t r = 0; r < kRows; ++r) out[r * n + at] += grad[r * num + i];
    else
      for (int64_t r = 0; r < count; ++r) out[r * n + at] += grad[r * num + i];
  }
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES void gather_row(const T* row, const int32_t* index,       \
                                  int64_t n, int64_t num, T* out) {         \
    gather_loop(row, index, n, num, out);                                   \
  }
MMTURBOX_LOOPS(uint16_t)
MMTURBOX_LOOPS(uint32_t)
MMTURBOX_LOOPS(uint64_t)
#undef MMTURBOX_LOOPS

Tensor gather_points(const Tensor& features_in, const Tensor& indices_in) {
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = features.size(0), C = features.size(1);
  const int64_t N = features.size(2), L = indices.size(1);
  Tensor out = torch::stable::new_empty(features, {B, C, L});
  const int32_t* index = indices.const_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_WIDTH(features, "gather_points", {
    const auto* from = static_cast<const scalar_t*>(features.data_ptr());
    auto* to = static_cast<scalar_t*>(out.data_ptr());
    torch::stable::parallel_for(
        0, B * C, std::max<int64_t>(1, 32768 / std::max<int64_t>(L, 1)),
        [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r)
            gather_row(from + r * N, index + r / C * L, N, L, to + r * L);
        });
  });
  return out;
}

// A thread owns rows (channels of a sample) and adds in the order of indices.
Tensor gather_points_backward(const Tensor& grad_in, const Tensor& indices_in,
                              int64_t N) {
  const Tensor grad = compute_tensor(grad_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = grad.size(0), C = grad.size(1), L = grad.size(2);
  Tensor out = torch::stable::new_zeros(grad, {B, C, N});
  const int32_t* index = indices.const_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "gather_points_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const int64_t groups = (C + kRows - 1) / kRows;
    torch::stable::parallel_for(
        0, B * groups, 1, [&](int64_t begin, int64_t end) {
          for (int64_t g = begin; g < end; ++g) {
            const int64_t b = g / groups, c = g % groups * kRows;
            scatter_rows(from + (b * C + c) * L, index + b * L, N, L,
                         std::min(kRows, C - c), to + (b * C + c) * N);
          }
        });
  });
  return in_type(out, grad_in.scalar_type());
}

// A stacked batch: its counts and the indices of its groups.
struct Stacked {
  Tensor counts, group_counts, indices;
  int64_t rows, groups, per_group;

  Stacked(const Tensor& counts_in, const Tensor& group_counts_in,
          const Tensor& indices_in, int64_t num_rows)
      : counts(torch::stable::contiguous(counts_in)),
        group_counts(torch::stable::contiguous(group_counts_in)),
        indices(torch::stable::contiguous(indices_in)),
        rows(num_rows),
        groups(indices.size(0)),
        per_group(indices.size(1)) {}

  // body(m, s, row) for the places of groups [begin, end) that have a row.
  template <typename F>
  void each(int64_t begin, int64_t end, const F& body) const {
    const int32_t* index = indices.const_data_ptr<int32_t>();
    for (int64_t m = begin; m < end; ++m) {
      const RowRange range = rows_of_item(
          counts.const_data_ptr<int32_t>(),
          group_counts.const_data_ptr<int32_t>(), counts.size(0), rows, m);
      for (int64_t s = 0; s < per_group; ++s) {
        const int64_t at = index[m * per_group + s];
        if (at >= 0 && range.begin + at < range.end)
          body(m, s, range.begin + at);
      }
    }
  }
};

Tensor group_points_stacked(const Tensor& features_in, const Tensor& counts,
                            const Tensor& indices,
                            const Tensor& group_counts) {
  const Tensor features = torch::stable::contiguous(features_in);
  const int64_t C = features.size(1);
  const Stacked batch(counts, group_counts, indices, features.size(0));
  const int64_t M = batch.groups, S = batch.per_group;
  Tensor out = torch::stable::new_zeros(features, {M, C, S});
  MMTURBOX_DISPATCH_WIDTH(features, "group_points_stacked", {
    const auto* from = static_cast<const scalar_t*>(features.data_ptr());
    auto* to = static_cast<scalar_t*>(out.data_ptr());
    torch::stable::parallel_for(0, M, 64, [&](int64_t begin, int64_t end) {
      batch.each(begin, end, [&](int64_t m, int64_t s, int64_t row) {
        for (int64_t c = 0; c < C; ++c)
          to[(m * C + c) * S + s] = from[row * C + c];
      });
    });
  });
  return out;
}

// A thread owns channels and adds in the order of the groups.
Tensor group_points_stacked_backward(const Tensor& grad_in,
                                     const Tensor& counts,
                                     const Tensor& indices,
                                     const Tensor& group_counts, int64_t N) {
  const Tensor grad = compute_tensor(grad_in);
  const int64_t C = grad.size(1);
  const Stacked batch(counts, group_counts, indices, N);
  const int64_t S = batch.per_group;
  Tensor out = torch::stable::new_zeros(grad, {N, C});
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "group_points_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, C, 16, [&](int64_t begin, int64_t end) {
      batch.each(0, batch.groups, [&](int64_t m, int64_t s, int64_t row) {
        for (int64_t c = begin; c < end; ++c)
          to[row * C + c] += from[(m * C + c) * S + s];
      });
    });
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("gather_points", TORCH_BOX(&gather_points));
  m.impl("gather_points_backward", TORCH_BOX(&gather_points_backward));
  m.impl("group_points_stacked", TORCH_BOX(&group_points_stacked));
  m.impl("group_points_stacked_backward",
         TORCH_BOX(&group_points_stacked_backward));
}

}  // namespace mmturbox
