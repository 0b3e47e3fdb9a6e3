// Bindings of ball_query.cu.
#include "ball_query.h"

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

template <typename T>
BallQuery<T> query_of(const Tensor& points, const Tensor& centers,
                      double min_radius, double max_radius, int64_t samples,
                      int32_t none, Tensor& out) {
  const T low = static_cast<T>(min_radius), high = static_cast<T>(max_radius);
  return {points.const_data_ptr<T>(),
          centers.const_data_ptr<T>(),
          low * low,
          high * high,
          samples,
          none,
          out.mutable_data_ptr<int32_t>()};
}

Tensor ball_query(const Tensor& points_in, const Tensor& centers_in,
                  double min_radius, double max_radius, int64_t samples) {
  const Launch launch(points_in);
  const Tensor points = compute_tensor(points_in);
  const Tensor centers = compute_tensor(centers_in);
  const int64_t B = centers.size(0), M = centers.size(1);
  Tensor out =
      torch::stable::new_empty(points, {B, M, samples}, ScalarType::Int);
  if (out.numel() == 0) return out;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "ball_query", {
    ball_query_cuda(query_of<scalar_t>(points, centers, min_radius,
                                       max_radius, samples, 0, out),
                    B, points.size(1), M, launch);
  });
  return out;
}

Tensor ball_query_stacked(const Tensor& points_in, const Tensor& counts_in,
                          const Tensor& centers_in,
                          const Tensor& center_counts_in, double max_radius,
                          int64_t samples) {
  const Launch launch(points_in);
  const Tensor points = compute_tensor(points_in);
  const Tensor centers = compute_tensor(centers_in);
  const Tensor counts = torch::stable::contiguous(counts_in);
  const Tensor center_counts = torch::stable::contiguous(center_counts_in);
  const int64_t M = centers.size(0);
  Tensor out = torch::stable::new_empty(points, {M, samples},
                                        ScalarType::Int);
  if (out.numel() == 0) return out;
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "ball_query_stacked", {
    ball_query_stacked_cuda(
        query_of<scalar_t>(points, centers, 0, max_radius, samples, -1, out),
        counts.const_data_ptr<int32_t>(),
        center_counts.const_data_ptr<int32_t>(), counts.size(0),
        points.size(0), M, launch);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("ball_query", TORCH_BOX(&ball_query));
  m.impl("ball_query_stacked", TORCH_BOX(&ball_query_stacked));
}

}  // namespace mmturbox
