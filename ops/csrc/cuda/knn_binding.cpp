// Binding of knn.cu.
#include "knn.h"

#include <tuple>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

std::tuple<Tensor, Tensor> k_nearest(const Tensor& points_in,
                                     const Tensor& centers_in, int64_t k) {
  const Launch launch(points_in);
  const Tensor points = compute_tensor(points_in);
  const Tensor centers = compute_tensor(centers_in);
  const int64_t B = centers.size(0), M = centers.size(1);
  Tensor index = torch::stable::new_empty(points, {B, M, k}, ScalarType::Int);
  Tensor distance = torch::stable::new_empty(points, {B, M, k});
  if (index.numel() == 0) return {index, distance};
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "k_nearest", {
    k_nearest_cuda(points.const_data_ptr<scalar_t>(),
                   centers.const_data_ptr<scalar_t>(), B, points.size(1), M,
                   k, index.mutable_data_ptr<int32_t>(),
                   distance.mutable_data_ptr<scalar_t>(), launch);
  });
  return {index, distance};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) { m.impl("k_nearest", TORCH_BOX(&k_nearest)); }

}  // namespace mmturbox
