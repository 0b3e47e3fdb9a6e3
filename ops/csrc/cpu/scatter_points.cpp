// CPU kernels of mmturbox::dynamic_scatter and its backward.
#include "../common/stable.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "cell_table.h"
#include "compute.h"

namespace mmturbox {
namespace {

enum Reduce : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// Rows of coordinates -> one number each that sorts as the rows do; -1 for a
// row with a negative entry. `cells` is the product of the extents.
std::vector<int64_t> row_numbers(const int64_t* coors, int64_t rows,
                                 int64_t width, int64_t* cells) {
  std::vector<int64_t> extent(width, 1), number(rows, -1);
  std::vector<char> valid(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t* row = coors + i * width;
    valid[i] = *std::min_element(row, row + width) >= 0;
    for (int64_t k = 0; valid[i] && k < width; ++k)
      extent[k] = std::max(extent[k], row[k] + 1);
  }
  *cells = 1;
  for (int64_t e : extent) {
    STD_TORCH_CHECK(!__builtin_mul_overflow(*cells, e, cells),
                    "dynamic_scatter: coordinates span more than 2^63 cells");
  }
  for (int64_t i = 0; i < rows; ++i) {
    if (!valid[i]) continue;
    number[i] = 0;
    for (int64_t k = 0; k < width; ++k)
      number[i] = number[i] * extent[k] + coors[i * width + k];
  }
  return number;
}

// Distinct numbers in increasing order; each point's place among them.
struct Groups {
  std::vector<int32_t> map;    // point -> group, or -1
  std::vector<int32_t> count;  // group -> points
  std::vector<int64_t> first;  // group -> its first point
};

Groups group(const std::vector<int64_t>& number, int64_t cells) {
  Groups out;
  out.map.assign(number.size(), -1);
  CellTable table(cells, number.size());
  std::vector<int64_t> first;
  for (size_t i = 0; i < number.size(); ++i) {
    if (number[i] < 0) continue;
    int32_t& g = table[number[i]];
    if (g < 0) {
      g = static_cast<int32_t>(first.size());
      first.push_back(i);
    }
    out.map[i] = g;
  }
  std::vector<std::pair<int64_t, int32_t>> order(first.size());
  for (size_t g = 0; g < first.size(); ++g)
    order[g] = {number[first[g]], static_cast<int32_t>(g)};
  std::sort(order.begin(), order.end());
  std::vector<int32_t> rank(first.size());
  for (size_t r = 0; r < order.size(); ++r) {
    rank[order[r].second] = static_cast<int32_t>(r);
    out.first.push_back(first[order[r].second]);
  }
  out.count.assign(first.size(), 0);
  for (int32_t& g : out.map)
    if (g >= 0) ++out.count[g = rank[g]];
  return out;
}

// Whether `value` takes the place of `best`; a NaN stays.
template <typename T>
inline bool wins(T value, T best) {
  return value > best || (value != value && best == best);
}

// Each thread owns a range of groups and reads the points in order, so that
// sums do not depend on the number of threads.
template <typename T>
void reduce(const T* feats, const Groups& groups, int64_t channels,
            int64_t mode, T* out) {
  const int64_t M = groups.count.size();
  const int64_t grain =
      std::max<int64_t>(1, M / torch::stable::get_num_threads() + 1);
  torch::stable::parallel_for(0, M, grain, [&](int64_t begin, int64_t end) {
    std::fill(out + begin * channels, out + end * channels,
              mode == kMax ? -std::numeric_limits<T>::infinity() : T(0));
    for (size_t i = 0; i < groups.map.size(); ++i) {
      const int64_t g = groups.map[i];
      if (g < begin || g >= end) continue;
      const T* row = feats + i * channels;
      T* to = out + g * channels;
      if (mode == kMax) {
        for (int64_t c = 0; c < channels; ++c)
          if (wins(row[c], to[c])) to[c] = row[c];
      } else {
        for (int64_t c = 0; c < channels; ++c) to[c] += row[c];
      }
    }
    if (mode != kMean) return;
    for (int64_t g = begin; g < end; ++g)
      for (int64_t c = 0; c < channels; ++c)
        out[g * channels + c] /= static_cast<T>(groups.count[g]);
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> dynamic_scatter(
    const Tensor& feats_in, const Tensor& coors_in, int64_t mode) {
  Tensor feats = compute_tensor(feats_in);
  Tensor coors = torch::stable::contiguous(
      torch::stable::to(coors_in, ScalarType::Long));
  const int64_t N = feats.size(0), C = feats.size(1), W = coors.size(1);
  const int64_t* rows = coors.const_data_ptr<int64_t>();
  int64_t cells;
  const auto number = row_numbers(rows, N, W, &cells);
  const Groups groups = group(number, cells);
  const int64_t M = groups.count.size();
  Tensor out_coors = torch::stable::new_empty(coors, {M, W});
  for (int64_t g = 0; g < M; ++g)
    std::copy_n(rows + groups.first[g] * W, W,
                out_coors.mutable_data_ptr<int64_t>() + g * W);
  Tensor map = torch::stable::new_empty(coors, {N}, ScalarType::Int);
  std::copy_n(groups.map.data(), N, map.mutable_data_ptr<int32_t>());
  Tensor count = torch::stable::new_empty(coors, {M}, ScalarType::Int);
  std::copy_n(groups.count.data(), M, count.mutable_data_ptr<int32_t>());
  Tensor out = torch::stable::new_empty(feats, {M, C});
  MMTURBOX_DISPATCH_FLOAT(feats.scalar_type(), "dynamic_scatter", {
    reduce<scalar_t>(feats.const_data_ptr<scalar_t>(), groups, C, mode,
                     out.mutable_data_ptr<scalar_t>());
  });
  return {in_type(out, feats_in.scalar_type()),
          in_type(out_coors, coors_in.scalar_type()), map, count};
}

// The gradient of a maximum goes to the first point that equals it.
template <typename T>
void max_backward(const T* grad, const T* feats, const T* reduced,
                  const int32_t* map, int64_t N, int64_t M, int64_t C,
                  T* out) {
  std::vector<char> taken(M * C, 0);
  for (int64_t i = 0; i < N; ++i) {
    if (map[i] < 0) continue;
    const int64_t to = map[i] * C;
    for (int64_t c = 0; c < C; ++c) {
      const T value = feats[i * C + c], best = reduced[to + c];
      const bool equal = value == best || (value != value && best != best);
      if (!equal || taken[to + c]) continue;
      taken[to + c] = 1;
      out[i * C + c] = grad[to + c];
    }
  }
}

template <typename T>
void sum_backward(const T* grad, const int32_t* map, const int32_t* count,
                  bool mean, int64_t N, int64_t C, T* out) {
  torch::stable::parallel_for(0, N, 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (map[i] < 0) continue;
      const T divisor = mean ? static_cast<T>(count[map[i]]) : T(1);
      for (int64_t c = 0; c < C; ++c)
        out[i * C + c] = grad[map[i] * C + c] / divisor;
    }
  });
}

Tensor dynamic_scatter_backward(const Tensor& grad_in, const Tensor& feats_in,
                                const Tensor& reduced_in, const Tensor& map_in,
                                const Tensor& count_in, int64_t mode) {
  Tensor grad = compute_tensor(grad_in), feats = compute_tensor(feats_in);
  Tensor reduced = compute_tensor(reduced_in);
  Tensor map = torch::stable::contiguous(map_in);
  Tensor count = torch::stable::contiguous(count_in);
  const int64_t N = feats.size(0), C = feats.size(1), M = reduced.size(0);
  Tensor out = torch::stable::new_zeros(feats, {N, C});
  MMTURBOX_DISPATCH_FLOAT(feats.scalar_type(), "dynamic_scatter_backward", {
    const scalar_t* g = grad.const_data_ptr<scalar_t>();
    const int32_t* m = map.const_data_ptr<int32_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    if (mode == kMax)
      max_backward(g, feats.const_data_ptr<scalar_t>(),
                   reduced.const_data_ptr<scalar_t>(), m, N, M, C, to);
    else
      sum_backward(g, m, count.const_data_ptr<int32_t>(), mode == kMean, N, C,
                   to);
  });
  return in_type(out, feats_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("dynamic_scatter", TORCH_BOX(&dynamic_scatter));
  m.impl("dynamic_scatter_backward", TORCH_BOX(&dynamic_scatter_backward));
}

}  // namespace mmturbox
