// Bindings of pillar_pool.cu.
#include "pillar_pool.h"

#include <tuple>

#include "binding.h"

namespace mmturbox {
namespace {

using torch::stable::contiguous;

// Room for the sums of blocks of pillars, `width` each.
Tensor new_partial(const Tensor& like, int64_t pillars, int64_t width) {
  const int64_t blocks = (pillars + kPillars - 1) / kPillars;
  return torch::stable::new_empty(like, {blocks, width}, ScalarType::Double);
}

std::tuple<Tensor, Tensor> pillar_stats(const Tensor& values_in,
                                        const Tensor& num_points_in) {
  const Launch launch(values_in);
  Tensor values = contiguous(values_in);
  Tensor num_points = contiguous(num_points_in);
  const int64_t M = values.size(0), P = values.size(1), F = values.size(2);
  Tensor partial = new_partial(values, M, F);
  Tensor mean = torch::stable::new_empty(values, {F});
  Tensor var_sum = torch::stable::new_empty(values, {F});
  MMTURBOX_DISPATCH_FLOAT(values.scalar_type(), "pillar_stats", {
    pillar_stats_cuda(values.const_data_ptr<scalar_t>(),
                      num_points.const_data_ptr<int32_t>(), M, P, F,
                      partial.mutable_data_ptr<double>(),
                      mean.mutable_data_ptr<scalar_t>(),
                      var_sum.mutable_data_ptr<scalar_t>(), launch);
  });
  return {mean, var_sum};
}

std::tuple<Tensor, Tensor> pillar_pool(const Tensor& values_in,
                                       const Tensor& num_points_in,
                                       const Tensor& mean_in,
                                       const Tensor& invstd_in,
                                       const Tensor& weight_in,
                                       const Tensor& bias_in) {
  const Launch launch(values_in);
  Tensor values = contiguous(values_in);
  Tensor num_points = contiguous(num_points_in);
  Tensor mean = contiguous(mean_in), invstd = contiguous(invstd_in);
  Tensor weight = contiguous(weight_in), bias = contiguous(bias_in);
  const int64_t M = values.size(0), P = values.size(1), F = values.size(2);
  Tensor pooled = torch::stable::new_empty(values, {M, F});
  Tensor index = torch::stable::new_empty(values, {M, F}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(values.scalar_type(), "pillar_pool", {
    pillar_pool_cuda(values.const_data_ptr<scalar_t>(),
                     num_points.const_data_ptr<int32_t>(),
                     mean.const_data_ptr<scalar_t>(),
                     invstd.const_data_ptr<scalar_t>(),
                     weight.const_data_ptr<scalar_t>(),
                     bias.const_data_ptr<scalar_t>(), M, P, F,
                     pooled.mutable_data_ptr<scalar_t>(),
                     index.mutable_data_ptr<int32_t>(), launch);
  });
  return {pooled, index};
}

std::tuple<Tensor, Tensor, Tensor> pillar_grads(const Tensor& points_in,
                                                const Tensor& num_points_in,
                                                const Tensor& index_in,
                                                const Tensor& grad_in) {
  const Launch launch(points_in);
  Tensor points = contiguous(points_in);
  Tensor num_points = contiguous(num_points_in);
  Tensor index = contiguous(index_in), grad = contiguous(grad_in);
  const int64_t M = points.size(0), P = points.size(1), K = points.size(2);
  const int64_t F = grad.size(1), outputs = F * K + K * K + K;
  Tensor partial = new_partial(points, M, outputs);
  const auto room = [&](torch::headeronly::IntHeaderOnlyArrayRef shape) {
    return torch::stable::new_empty(points, shape, ScalarType::Double);
  };
  Tensor sums = room({outputs});
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "pillar_grads", {
    pillar_grads_cuda(points.const_data_ptr<scalar_t>(),
                      num_points.const_data_ptr<int32_t>(),
                      index.const_data_ptr<int32_t>(),
                      grad.const_data_ptr<scalar_t>(), M, P, K, F,
                      partial.mutable_data_ptr<double>(),
                      sums.mutable_data_ptr<double>(), launch);
  });
  // Tensors of their own: an operator's outputs must not share memory.
  Tensor picked = room({F, K}), moment = room({K, K}), total = room({K});
  int64_t from = 0;
  for (Tensor* one : {&picked, &moment, &total}) {
    const int64_t number = one->numel();
    Tensor flat = torch::stable::view(*one, {number});
    torch::stable::copy_(flat,
                         torch::stable::narrow(sums, 0, from, number));
    from += number;
  }
  return {picked, moment, total};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("pillar_stats", TORCH_BOX(&pillar_stats));
  m.impl("pillar_pool", TORCH_BOX(&pillar_pool));
  m.impl("pillar_grads", TORCH_BOX(&pillar_grads));
}

}  // namespace mmturbox
