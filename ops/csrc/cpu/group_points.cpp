// CPU kernels of mmturbox::gather_points, group_points_stacked, and their
// backward.
#include <algorithm>
#include <vector>

#include "../common/stable.h"
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

// A thread owns rows (a sample's channel) and adds in the order of indices.
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
    torch::stable::parallel_for(
        0, B * C, std::max<int64_t>(1, 32768 / std::max<int64_t>(L, 1)),
        [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r)
            for (int64_t i = 0; i < L; ++i) {
              const int32_t at = index[r / C * L + i];
              if (at >= 0 && at < N) to[r * N + at] += from[r * L + i];
            }
        });
  });
  return in_type(out, grad_in.scalar_type());
}

// Where the rows of each group of a stacked batch lie: [start, end).
struct Segments {
  std::vector<int64_t> start, end;

  Segments(const Tensor& feature_counts_in, const Tensor& index_counts_in,
           int64_t num_features, int64_t num_groups)
      : start(num_groups, 0), end(num_groups, 0) {
    const Tensor features = torch::stable::contiguous(feature_counts_in);
    const Tensor groups = torch::stable::contiguous(index_counts_in);
    int64_t row = 0, group = 0;
    for (int64_t b = 0; b < groups.size(0); ++b) {
      const int64_t next = std::min(
          num_features,
          row + std::max(features.const_data_ptr<int32_t>()[b], 0));
      const int64_t last = std::min(
          num_groups,
          group + std::max(groups.const_data_ptr<int32_t>()[b], 0));
      for (; group < last; ++group) {
        start[group] = row;
        end[group] = next;
      }
      row = next;
    }
  }
  // The row of index `i` of a group, or -1.
  int64_t row(int64_t group, int32_t i) const {
    return i >= 0 && start[group] + i < end[group] ? start[group] + i : -1;
  }
};

Tensor group_points_stacked(const Tensor& features_in,
                            const Tensor& feature_counts,
                            const Tensor& indices_in,
                            const Tensor& index_counts) {
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t N = features.size(0), C = features.size(1);
  const int64_t M = indices.size(0), S = indices.size(1);
  const Segments segments(feature_counts, index_counts, N, M);
  Tensor out = torch::stable::new_zeros(features, {M, C, S});
  const int32_t* index = indices.const_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_WIDTH(features, "group_points_stacked", {
    const auto* from = static_cast<const scalar_t*>(features.data_ptr());
    auto* to = static_cast<scalar_t*>(out.data_ptr());
    torch::stable::parallel_for(0, M, 64, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m)
        for (int64_t s = 0; s < S; ++s) {
          const int64_t row = segments.row(m, index[m * S + s]);
          if (row < 0) continue;
          for (int64_t c = 0; c < C; ++c)
            to[(m * C + c) * S + s] = from[row * C + c];
        }
    });
  });
  return out;
}

// A thread owns channels and adds in the order of the groups.
Tensor group_points_stacked_backward(const Tensor& grad_in,
                                     const Tensor& feature_counts,
                                     const Tensor& indices_in,
                                     const Tensor& index_counts, int64_t N) {
  const Tensor grad = compute_tensor(grad_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t M = grad.size(0), C = grad.size(1), S = grad.size(2);
  const Segments segments(feature_counts, index_counts, N, M);
  Tensor out = torch::stable::new_zeros(grad, {N, C});
  const int32_t* index = indices.const_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "group_points_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, C, 16, [&](int64_t begin, int64_t end) {
      for (int64_t m = 0; m < M; ++m)
        for (int64_t s = 0; s < S; ++s) {
          const int64_t row = segments.row(m, index[m * S + s]);
          if (row < 0) continue;
          for (int64_t c = begin; c < end; ++c)
            to[row * C + c] += from[(m * C + c) * S + s];
        }
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
