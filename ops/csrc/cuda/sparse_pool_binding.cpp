// Bindings of sparse_pool.cu.
#include "sparse_pool.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <optional>
#include <tuple>
#include <vector>

#include "../common/sparse_layers.h"
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
      STD_TORCH_CHECK(false, "sparse_pool: expected floating point");
  }
}

template <typename T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

Tensor sparse_max_pool(const Tensor& features_in, const Tensor& table_in,
                       const Tensor&, const std::optional<Tensor>& chain_in) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor table = torch::stable::contiguous(table_in);
  std::optional<Tensor> chain;
  if (chain_in) chain = torch::stable::contiguous(*chain_in);
  const int64_t C = features.size(1), M = table.size(1);
  Tensor out = torch::stable::new_empty(features, {M, C});
  dispatch(features.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    sparse_max_pool_cuda(data<T>(features), C, table.const_data_ptr<int32_t>(),
                         table.size(0), M,
                         chain ? chain->const_data_ptr<int32_t>() : nullptr,
                         static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

Tensor sparse_max_pool_grad(const Tensor& features_in,
                            const Tensor& output_in, const Tensor& grad_in,
                            const Tensor& reached_in) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor output = torch::stable::contiguous(output_in);
  const Tensor grad = torch::stable::contiguous(grad_in);
  const Tensor reached = torch::stable::contiguous(reached_in);
  STD_TORCH_CHECK(output.scalar_type() == features.scalar_type() &&
                      grad.scalar_type() == features.scalar_type(),
                  "sparse_max_pool_grad: dtypes differ");
  const int64_t N = features.size(0), C = features.size(1);
  Tensor out = torch::stable::new_empty(features, {N, C});
  dispatch(features.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    sparse_max_pool_grad_cuda(data<T>(features), data<T>(output),
                              data<T>(grad), C,
                              reached.const_data_ptr<int32_t>(),
                              reached.size(0), N,
                              static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

std::tuple<Tensor, Tensor> sparse_to_dense(const Tensor& features_in,
                                           const Tensor& coords_in,
                                           int64_t batch_size, Sizes shape) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const SparseGrid grid = make_grid(batch_size, shape.data(), shape.size());
  const int64_t all = num_cells(grid), C = features.size(1);
  Tensor owner = torch::stable::new_empty(coords, {all});
  sparse_owner_cuda(grid, coords.const_data_ptr<int32_t>(), coords.size(0),
                    all, owner.mutable_data_ptr<int32_t>(), launch);
  Sizes size{batch_size, C};
  size.insert(size.end(), shape.begin(), shape.end());
  Tensor out = torch::stable::new_empty(features, size);
  dispatch(features.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (batch_size > 0)
      sparse_to_dense_cuda(data<T>(features), owner.const_data_ptr<int32_t>(),
                           batch_size, C, all / batch_size,
                           static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return {out, owner};
}

Tensor sparse_to_dense_grad(const Tensor& grad_in, const Tensor& coords_in,
                            const Tensor& owner_in) {
  const Launch launch(grad_in);
  const Tensor grad = torch::stable::contiguous(grad_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const Tensor owner = torch::stable::contiguous(owner_in);
  const int64_t N = coords.size(0), C = grad.size(1);
  const SparseGrid grid =
      make_grid(grad.size(0), grad.sizes().data() + 2, grad.dim() - 2);
  Tensor out = torch::stable::new_empty(grad, {N, C});
  dispatch(grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SparseGrid one = grid;
    one.batch = 1;
    sparse_from_dense_cuda(grid, data<T>(grad),
                           coords.const_data_ptr<int32_t>(),
                           owner.const_data_ptr<int32_t>(), N, C,
                           num_cells(one),
                           static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("sparse_max_pool", TORCH_BOX(&sparse_max_pool));
  m.impl("sparse_max_pool_grad", TORCH_BOX(&sparse_max_pool_grad));
  m.impl("sparse_to_dense", TORCH_BOX(&sparse_to_dense));
  m.impl("sparse_to_dense_grad", TORCH_BOX(&sparse_to_dense_grad));
}

}  // namespace mmturbox
