// Bindings of furthest_point_sample.cu.
#include "furthest_point_sample.h"

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

Tensor furthest_point_sample(const Tensor& points_in, int64_t picks) {
  const Launch launch(points_in);
  const Tensor points = compute_tensor(points_in);
  const int64_t B = points.size(0), N = points.size(1);
  Tensor out = torch::stable::new_empty(points, {B, picks}, ScalarType::Int);
  if (out.numel() == 0) return out;
  STD_TORCH_CHECK(N > 0, "furthest_point_sample: no points to pick from");
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "furthest_point_sample", {
    const scalar_t* from = points.const_data_ptr<scalar_t>();
    Tensor keys =
        torch::stable::new_empty(points, {B * N}, ScalarType::Long);
    fps_keys_cuda(from, B, N, keys.mutable_data_ptr<int64_t>(), launch);
    const Tensor order = stable_sort(keys).second;
    const int64_t slots = fps_slots(N), places = B * slots * 32;
    // Tiles: coordinates and distances; then boxes and tops.
    Tensor values = torch::stable::new_empty(
        points, {places * 4 + B * slots * 7});
    Tensor indices = torch::stable::new_empty(
        points, {places + B * slots}, ScalarType::Int);
    scalar_t* value = values.mutable_data_ptr<scalar_t>();
    int32_t* index = indices.mutable_data_ptr<int32_t>();
    const FpsScratch<scalar_t> scratch{value,
                                       value + places * 3,
                                       index,
                                       value + places * 4,
                                       value + places * 4 + B * slots * 6,
                                       index + places,
                                       slots};
    fps_cuda(from, order.const_data_ptr<int64_t>(), B, N, picks, scratch,
             out.mutable_data_ptr<int32_t>(), launch);
  });
  return out;
}

Tensor furthest_point_sample_with_dist(const Tensor& matrix_in,
                                       int64_t picks) {
  const Launch launch(matrix_in);
  const Tensor matrix = compute_tensor(matrix_in);
  const int64_t B = matrix.size(0), N = matrix.size(1);
  Tensor out = torch::stable::new_empty(matrix, {B, picks}, ScalarType::Int);
  if (out.numel() == 0) return out;
  STD_TORCH_CHECK(N > 0,
                  "furthest_point_sample_with_dist: no points to pick from");
  Tensor distance = torch::stable::new_empty(matrix, {B, N});
  MMTURBOX_DISPATCH_FLOAT(matrix.scalar_type(), "furthest_point_sample", {
    fps_with_dist_cuda(matrix.const_data_ptr<scalar_t>(), B, N, picks,
                       distance.mutable_data_ptr<scalar_t>(),
                       out.mutable_data_ptr<int32_t>(), launch);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("furthest_point_sample", TORCH_BOX(&furthest_point_sample));
  m.impl("furthest_point_sample_with_dist",
         TORCH_BOX(&furthest_point_sample_with_dist));
}

}  // namespace mmturbox
