// CPU kernels of mmturbox::points_in_boxes_{part,all}.
#include "../common/points_in_boxes.h"

#include <vector>

#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {
namespace {

template <typename T>
std::vector<PlacedBox<T>> place_boxes(const T* boxes, int64_t number) {
  std::vector<PlacedBox<T>> placed;
  for (int64_t t = 0; t < number; ++t)
    placed.push_back(place_box(boxes + t * 7));
  return placed;
}

// first[m] = index of the first box that holds point m, or -1.
template <typename T>
void first_box(const T* points, const std::vector<PlacedBox<T>>& boxes,
               int64_t num_points, int32_t* first) {
  torch::stable::parallel_for(
      0, num_points, 1024, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin; m < end; ++m) {
          first[m] = -1;
          for (size_t t = 0; t < boxes.size(); ++t) {
            if (boxes[t].holds(points + m * 3)) {
              first[m] = static_cast<int32_t>(t);
              break;
            }
          }
        }
      });
}

// inside[m * boxes + t] = 1 where box t holds point m.
template <typename T>
void every_box(const T* points, const std::vector<PlacedBox<T>>& boxes,
               int64_t num_points, int32_t* inside) {
  torch::stable::parallel_for(
      0, num_points, 1024, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin; m < end; ++m)
          for (size_t t = 0; t < boxes.size(); ++t)
            inside[m * boxes.size() + t] = boxes[t].holds(points + m * 3);
      });
}

Tensor points_in_boxes_part(const Tensor& points_in, const Tensor& boxes_in) {
  Tensor points = compute_tensor(points_in);
  Tensor boxes = compute_tensor(boxes_in);
  const int64_t B = points.size(0), M = points.size(1), N = boxes.size(1);
  Tensor out = torch::stable::new_empty(points, {B, M}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "points_in_boxes_part", {
    for (int64_t b = 0; b < B; ++b)
      first_box<scalar_t>(
          points.const_data_ptr<scalar_t>() + b * M * 3,
          place_boxes(boxes.const_data_ptr<scalar_t>() + b * N * 7, N), M,
          out.mutable_data_ptr<int32_t>() + b * M);
  });
  return out;
}

Tensor points_in_boxes_all(const Tensor& points_in, const Tensor& boxes_in) {
  Tensor points = compute_tensor(points_in);
  Tensor boxes = compute_tensor(boxes_in);
  const int64_t B = points.size(0), M = points.size(1), N = boxes.size(1);
  Tensor out = torch::stable::new_empty(points, {B, M, N}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "points_in_boxes_all", {
    for (int64_t b = 0; b < B; ++b)
      every_box<scalar_t>(
          points.const_data_ptr<scalar_t>() + b * M * 3,
          place_boxes(boxes.const_data_ptr<scalar_t>() + b * N * 7, N), M,
          out.mutable_data_ptr<int32_t>() + b * M * N);
  });
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("points_in_boxes_part", TORCH_BOX(&points_in_boxes_part));
  m.impl("points_in_boxes_all", TORCH_BOX(&points_in_boxes_all));
}

}  // namespace mmturbox
