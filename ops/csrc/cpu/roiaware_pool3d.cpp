// CPU kernels of mmturbox::roiaware_assign, roiaware_pool and its backward.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "box_points.h"
#include "compute.h"

namespace mmturbox {
namespace {

// The points of one box: `member` sorted by cell, in order within a cell;
// count[v] of them are in cell v.
template <typename T>
void assign_box(const T* points, const BoxPoints<T>& cloud, const T* roi,
                int64_t out_x, int64_t out_y, int64_t out_z, int64_t* count,
                std::vector<int32_t>& member) {
  const PoolBox<T> box(roi);
  const auto found = cloud.inside(box, std::numeric_limits<int64_t>::max());
  std::vector<int64_t> cell(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const T* p = points + found[i] * int64_t{3};
    cell[i] = box.cell(p[0], p[1], p[2], out_x, out_y, out_z);
    ++count[cell[i]];
  }
  std::vector<int64_t> order(found.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return cell[a] < cell[b];
  });
  member.resize(found.size());
  for (size_t i = 0; i < found.size(); ++i) member[i] = found[order[i]];
}

std::tuple<Tensor, Tensor> roiaware_assign(const Tensor& rois_in,
                                           const Tensor& points_in,
                                           int64_t out_x, int64_t out_y,
                                           int64_t out_z) {
  const Tensor rois = compute_tensor(rois_in);
  const Tensor points = compute_tensor(points_in);
  const int64_t R = rois.size(0), V = out_x * out_y * out_z;
  Tensor starts =
      torch::stable::new_zeros(points, {R * V + 1}, ScalarType::Long);
  int64_t* start = starts.mutable_data_ptr<int64_t>();
  std::vector<std::vector<int32_t>> member(R);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "roiaware_assign", {
    const scalar_t* from = points.const_data_ptr<scalar_t>();
    const scalar_t* roi = rois.const_data_ptr<scalar_t>();
    const BoxPoints<scalar_t> cloud(from, points.size(0));
    torch::stable::parallel_for(0, R, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        assign_box(from, cloud, roi + r * 7, out_x, out_y, out_z,
                   start + 1 + r * V, member[r]);
    });
  });
  std::partial_sum(start, start + R * V + 1, start);
  Tensor members =
      torch::stable::new_empty(points, {start[R * V]}, ScalarType::Int);
  int32_t* to = members.mutable_data_ptr<int32_t>();
  for (const auto& one : member) to = std::copy(one.begin(), one.end(), to);
  return {starts, members};
}

struct Cells {
  const int64_t* start;
  const int32_t* member;
  int64_t limit;  // of the members that count

  int64_t begin(int64_t v) const { return start[v]; }
  int64_t end(int64_t v) const {
    return std::min(start[v + 1], start[v] + limit);
  }
};

template <typename T>
void average_cell(const T* features, const Cells& cells, int64_t v, int64_t C,
                  T* out) {
  std::fill(out, out + C, T(0));
  for (int64_t i = cells.begin(v); i < cells.end(v); ++i) {
    const T* row = features + cells.member[i] * C;
    for (int64_t c = 0; c < C; ++c) out[c] += row[c];
  }
  const int64_t number = cells.end(v) - cells.begin(v);
  if (number <= 0) return;
  for (int64_t c = 0; c < C; ++c) out[c] /= static_cast<T>(number);
}

// A NaN and minus infinity are never the largest.
template <typename T>
void largest_of_cell(const T* features, const Cells& cells, int64_t v,
                     int64_t C, T* out, int32_t* argmax) {
  std::fill(argmax, argmax + C, -1);
  std::fill(out, out + C,
            cells.begin(v) < cells.end(v)
                ? -std::numeric_limits<T>::infinity()
                : T(0));
  for (int64_t i = cells.begin(v); i < cells.end(v); ++i) {
    const T* row = features + cells.member[i] * C;
    for (int64_t c = 0; c < C; ++c) {
      const bool larger = row[c] > out[c];
      out[c] = larger ? row[c] : out[c];
      argmax[c] = larger ? cells.member[i] : argmax[c];
    }
  }
  if (cells.begin(v) >= cells.end(v)) return;
  for (int64_t c = 0; c < C; ++c)
    if (argmax[c] < 0) out[c] = 0;
}

std::tuple<Tensor, Tensor> roiaware_pool(const Tensor& features_in,
                                         const Tensor& starts_in,
                                         const Tensor& members_in,
                                         int64_t limit, bool take_max) {
  const Tensor features = compute_tensor(features_in);
  const Tensor starts = torch::stable::contiguous(starts_in);
  const Tensor members = torch::stable::contiguous(members_in);
  const int64_t V = starts.size(0) - 1, C = features.size(1);
  Tensor out = torch::stable::new_empty(features, {V, C});
  Tensor argmax = torch::stable::new_empty(
      features, {take_max ? V : 0, C}, ScalarType::Int);
  int32_t* arg = argmax.mutable_data_ptr<int32_t>();
  const Cells cells{starts.const_data_ptr<int64_t>(),
                    members.const_data_ptr<int32_t>(), limit};
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "roiaware_pool", {
    const scalar_t* from = features.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, V, 1024, [&](int64_t v, int64_t end) {
      for (; v < end; ++v) {
        if (take_max)
          largest_of_cell(from, cells, v, C, to + v * C, arg + v * C);
        else
          average_cell(from, cells, v, C, to + v * C);
      }
    });
  });
  return {in_type(out, features_in.scalar_type()), argmax};
}

// Channels [begin, end) of the gradient, cell after cell.
template <typename T>
void backward_channels(const T* grad, const Cells& cells,
                       const int32_t* argmax, int64_t V, int64_t C,
                       int64_t begin, int64_t end, T* out) {
  for (int64_t v = 0; v < V; ++v) {
    const int64_t first = cells.begin(v), last = cells.end(v);
    if (first >= last) continue;
    const T* from = grad + v * C;
    if (argmax != nullptr) {
      for (int64_t c = begin; c < end; ++c)
        if (argmax[v * C + c] >= 0) out[argmax[v * C + c] * C + c] += from[c];
      continue;
    }
    const T number = static_cast<T>(last - first);
    for (int64_t i = first; i < last; ++i)
      for (int64_t c = begin; c < end; ++c)
        out[cells.member[i] * C + c] += from[c] / number;
  }
}

Tensor roiaware_pool_backward(const Tensor& grad_in, const Tensor& starts_in,
                              const Tensor& members_in,
                              const Tensor& argmax_in, int64_t num_points,
                              int64_t limit, bool take_max) {
  const Tensor grad = compute_tensor(grad_in);
  const Tensor starts = torch::stable::contiguous(starts_in);
  const Tensor members = torch::stable::contiguous(members_in);
  const Tensor argmax = torch::stable::contiguous(argmax_in);
  const int64_t V = starts.size(0) - 1, C = grad.size(1);
  Tensor out = torch::stable::new_zeros(grad, {num_points, C});
  const Cells cells{starts.const_data_ptr<int64_t>(),
                    members.const_data_ptr<int32_t>(), limit};
  const int32_t* arg =
      take_max ? argmax.const_data_ptr<int32_t>() : nullptr;
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "roiaware_pool_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, C, 16, [&](int64_t begin, int64_t end) {
      backward_channels(from, cells, arg, V, C, begin, end, to);
    });
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("roiaware_assign", TORCH_BOX(&roiaware_assign));
  m.impl("roiaware_pool", TORCH_BOX(&roiaware_pool));
  m.impl("roiaware_pool_backward", TORCH_BOX(&roiaware_pool_backward));
}

}  // namespace mmturbox
