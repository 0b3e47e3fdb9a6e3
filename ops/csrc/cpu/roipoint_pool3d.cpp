// CPU kernel of mmturbox::roipoint_pool3d.
#include <cstring>
#include <tuple>

#include "../common/stable.h"
#include "box_points.h"
#include "compute.h"

namespace mmturbox {
namespace {

// The first points in each box, then again from the first on; -1 if none.
template <typename T>
void choose(const T* points, const T* boxes, int64_t n, int64_t num_boxes,
            int64_t samples, int32_t* index, int32_t* empty) {
  const BoxPoints<T> cloud(points, n);
  torch::stable::parallel_for(0, num_boxes, 1, [&](int64_t m, int64_t end) {
    for (; m < end; ++m) {
      const auto found =
          cloud.inside(PoolBox<T>(boxes + m * 7), std::max<int64_t>(samples,
                                                                    1));
      empty[m] = found.empty();
      for (int64_t s = 0; s < samples; ++s)
        index[m * samples + s] = found.empty() ? -1 : found[s % found.size()];
    }
  });
}

// Rows of both inputs side by side.
void copy_rows(const Tensor& points, const Tensor& features,
               const Tensor& index_in, Tensor& out) {
  const int64_t N = points.size(1), C = features.size(2);
  const int64_t width = points.element_size();
  const int64_t rows = out.size(0) * out.size(1) * out.size(2);
  const int64_t per_sample = out.size(1) * out.size(2);
  const int32_t* index = index_in.const_data_ptr<int32_t>();
  const char* xyz = static_cast<const char*>(points.data_ptr());
  const char* rest = static_cast<const char*>(features.data_ptr());
  char* to = static_cast<char*>(out.data_ptr());
  torch::stable::parallel_for(0, rows, 512, [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      if (index[r] < 0) continue;
      const int64_t at = r / per_sample * N + index[r];
      char* row = to + r * (3 + C) * width;
      std::memcpy(row, xyz + at * 3 * width, 3 * width);
      std::memcpy(row + 3 * width, rest + at * C * width, C * width);
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> roipoint_pool3d(const Tensor& points_in,
                                                   const Tensor& features_in,
                                                   const Tensor& boxes_in,
                                                   int64_t samples) {
  const Tensor points = torch::stable::contiguous(points_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor xyz = compute_tensor(points), boxes = compute_tensor(boxes_in);
  const int64_t B = points.size(0), N = points.size(1), M = boxes.size(1);
  Tensor index =
      torch::stable::new_empty(points, {B, M, samples}, ScalarType::Int);
  Tensor empty = torch::stable::new_empty(points, {B, M}, ScalarType::Int);
  Tensor out = torch::stable::new_zeros(
      features, {B, M, samples, 3 + features.size(2)});
  MMTURBOX_DISPATCH_FLOAT(xyz.scalar_type(), "roipoint_pool3d", {
    for (int64_t b = 0; b < B; ++b)
      choose(xyz.const_data_ptr<scalar_t>() + b * N * 3,
             boxes.const_data_ptr<scalar_t>() + b * M * 7, N, M, samples,
             index.mutable_data_ptr<int32_t>() + b * M * samples,
             empty.mutable_data_ptr<int32_t>() + b * M);
  });
  copy_rows(points, features, index, out);
  return {out, empty, index};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("roipoint_pool3d", TORCH_BOX(&roipoint_pool3d));
}

}  // namespace mmturbox
