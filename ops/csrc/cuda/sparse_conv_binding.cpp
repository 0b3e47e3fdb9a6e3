// Bindings of sparse_conv.cu.
#include "sparse_conv.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <optional>

#include "binding.h"

namespace mmturbox {
namespace {

// `body(T(), Sum())` for the type of the features.
template <typename Body>
void dispatch(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Float:
      return body(float(), float());
    case ScalarType::Double:
      return body(double(), double());
    case ScalarType::Half:
      return body(torch::headeronly::Half(), float());
    case ScalarType::BFloat16:
      return body(torch::headeronly::BFloat16(), float());
    default:
      STD_TORCH_CHECK(false, "sparse_conv: expected floating point");
  }
}

std::optional<Tensor> dense(const std::optional<Tensor>& tensor) {
  if (!tensor) return tensor;
  return torch::stable::contiguous(*tensor);
}

template <typename T>
SparseReads<T> reads(const Tensor& features, const Tensor& table,
                     const std::optional<Tensor>& chain, int64_t unchained) {
  return {static_cast<const T*>(features.const_data_ptr()),
          features.size(1),
          table.const_data_ptr<int32_t>(),
          table.size(0),
          table.size(1),
          chain ? chain->const_data_ptr<int32_t>() : nullptr,
          unchained};
}

Tensor sparse_conv(const Tensor& features_in, const Tensor& weight_in,
                   const std::optional<Tensor>& bias_in,
                   const Tensor& table_in, const std::optional<Tensor>&,
                   const std::optional<Tensor>& chain_in,
                   const std::optional<Tensor>&, int64_t unchained,
                   bool relu) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor weight = torch::stable::contiguous(weight_in);
  const Tensor table = torch::stable::contiguous(table_in);
  const std::optional<Tensor> bias = dense(bias_in), chain = dense(chain_in);
  const int64_t M = table.size(1), C = weight.size(2);
  STD_TORCH_CHECK(weight.scalar_type() == features.scalar_type() &&
                      (!bias || bias->scalar_type() == features.scalar_type()),
                  "sparse_conv: dtypes differ");
  Tensor out = torch::stable::new_empty(features, {M, C});
  dispatch(features.scalar_type(), [&](auto zero, auto) {
    using T = decltype(zero);
    const auto at = reinterpret_cast<uintptr_t>(features.const_data_ptr());
    const bool packed =
        features.size(1) % 4 == 0 && at % (4 * sizeof(T)) == 0;
    sparse_conv_cuda(
        reads<T>(features, table, chain, unchained),
        static_cast<const T*>(weight.const_data_ptr()),
        bias ? static_cast<const T*>(bias->const_data_ptr()) : nullptr, C,
        relu, packed, static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

Tensor sparse_conv_weight_grad(const Tensor& features_in,
                               const Tensor& grad_in, const Tensor& table_in,
                               const std::optional<Tensor>& chain_in,
                               int64_t unchained) {
  const Launch launch(features_in);
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor grad = torch::stable::contiguous(grad_in);
  const Tensor table = torch::stable::contiguous(table_in);
  const std::optional<Tensor> chain = dense(chain_in);
  STD_TORCH_CHECK(grad.scalar_type() == features.scalar_type(),
                  "sparse_conv_weight_grad: dtypes differ");
  const int64_t K = table.size(0), I = features.size(1), C = grad.size(1);
  Tensor out = torch::stable::new_empty(features, {K, I, C});
  dispatch(features.scalar_type(), [&](auto zero, auto sum) {
    using T = decltype(zero);
    using Sum = decltype(sum);
    Tensor sums = torch::stable::new_empty(
        features, {sparse_grad_parts(table.size(1)), K, I, C},
        sizeof(Sum) == 8 ? ScalarType::Double : ScalarType::Float);
    sparse_weight_grad_cuda(reads<T>(features, table, chain, unchained),
                            static_cast<const T*>(grad.const_data_ptr()), C,
                            sums.mutable_data_ptr<Sum>(),
                            static_cast<T*>(out.mutable_data_ptr()), launch);
  });
  return out;
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("sparse_conv", TORCH_BOX(&sparse_conv));
  m.impl("sparse_conv_weight_grad", TORCH_BOX(&sparse_conv_weight_grad));
}

}  // namespace mmturbox
