// Bindings of scatter_points.cu.
#include "scatter_points.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "binding.h"

namespace mmturbox {
namespace {

// `body(T())` for the type of the features.
template <typename Body>
void dispatch(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Float:
      return body(float());
    case ScalarType::Double:
      return body(double());
    case ScalarType::Half:
      return body(torch::headeronly::Half());
    case ScalarType::BFloat16:
      return body(torch::headeronly::BFloat16());
    default:
      STD_TORCH_CHECK(false, "voxel_reduce: expected floating point");
  }
}

Tensor voxel_reduce(const Tensor& feats_in, const Tensor& map,
                    const Tensor& count_in, const Tensor& order_in,
                    int64_t mode) {
  const Launch launch(feats_in);
  Tensor feats = torch::stable::contiguous(feats_in);
  Tensor count = torch::stable::contiguous(count_in);
  Tensor order = torch::stable::contiguous(order_in);
  const int64_t M = count.size(0), C = feats.size(1);
  const Tensor end = cumsum(count);
  Tensor out = torch::stable::new_empty(feats, {M, C});
  dispatch(feats.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    voxel_reduce_cuda(static_cast<const T*>(feats.const_data_ptr()),
                      count.const_data_ptr<int32_t>(),
                      end.const_data_ptr<int64_t>(),
                      order.const_data_ptr<int64_t>(), M, C, mode,
                      static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

Tensor voxel_reduce_backward(const Tensor& grad_in, const Tensor& feats_in,
                             const Tensor& reduced_in, const Tensor& map_in,
                             const Tensor& count_in, const Tensor& order_in,
                             int64_t mode) {
  const Launch launch(grad_in);
  Tensor grad = torch::stable::contiguous(grad_in);
  Tensor map = torch::stable::contiguous(map_in);
  Tensor count = torch::stable::contiguous(count_in);
  const int64_t N = map.size(0), M = count.size(0), C = grad.size(1);
  Tensor out;
  if (mode != kMax) {
    out = torch::stable::new_empty(grad, {N, C});
    dispatch(grad.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      sum_backward_cuda(static_cast<const T*>(grad.const_data_ptr()),
                        map.const_data_ptr<int32_t>(),
                        count.const_data_ptr<int32_t>(), mode == kMean, N, C,
                        static_cast<T*>(out.mutable_data_ptr()), launch);
    });
    return out;
  }
  out = torch::stable::new_zeros(grad, {N, C});
  Tensor feats = torch::stable::contiguous(feats_in);
  Tensor reduced = torch::stable::contiguous(reduced_in);
  Tensor order = torch::stable::contiguous(order_in);
  STD_TORCH_CHECK(feats.scalar_type() == grad.scalar_type() &&
                      reduced.scalar_type() == grad.scalar_type(),
                  "voxel_reduce_backward: dtypes differ");
  const Tensor end = cumsum(count);
  dispatch(grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    max_backward_cuda(static_cast<const T*>(grad.const_data_ptr()),
                      static_cast<const T*>(feats.const_data_ptr()),
                      static_cast<const T*>(reduced.const_data_ptr()),
                      count.const_data_ptr<int32_t>(),
                      end.const_data_ptr<int64_t>(),
                      order.const_data_ptr<int64_t>(), M, C,
                      static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("voxel_reduce", TORCH_BOX(&voxel_reduce));
  m.impl("voxel_reduce_backward", TORCH_BOX(&voxel_reduce_backward));
}

}  // namespace mmturbox
