// CPU kernels of mmturbox::pillar_{stats,pool,grads}.
//
// Values are (M, P, F): M pillars with room for P points each, of which the
// first count[m] are there and the rest are zero. Sums run in the order in
// which torch's batch norm takes them, channel by channel, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../common/stable.h"

namespace mmturbox {
namespace {

// Channels [begin, end) of the sums; what is zero is left out.
template <typename T>
inline __attribute__((always_inline)) void sum_loop(
    const T* values, const int32_t* count, int64_t M, int64_t P, int64_t F,
    int64_t begin, int64_t end, double* sum) {
  for (int64_t m = 0; m < M; ++m)
    for (int64_t p = 0; p < count[m]; ++p) {
      const T* row = values + (m * P + p) * F;
      for (int64_t f = begin; f < end; ++f) sum[f] += row[f];
    }
}

// The square is taken in T and added in double.
template <typename T>
inline __attribute__((always_inline)) void square_loop(
    const T* values, const int32_t* count, int64_t M, int64_t P, int64_t F,
    int64_t begin, int64_t end, const T* mean, double* sum) {
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t p = 0; p < count[m]; ++p) {
      const T* row = values + (m * P + p) * F;
      for (int64_t f = begin; f < end; ++f) {
        const T off = row[f] - mean[f];
        sum[f] += off * off;
      }
    }
    for (int64_t p = count[m]; p < P; ++p)
      for (int64_t f = begin; f < end; ++f) sum[f] += mean[f] * mean[f];
  }
}

// best = max over points of alpha * value + beta, rounded once as a fused
// multiply-add; where = the first point that has it.
template <typename T>
inline __attribute__((always_inline)) void pool_loop(
    const T* values, int64_t count, int64_t P, int64_t F, const T* alpha,
    const T* beta, T* best, int32_t* where) {
  for (int64_t f = 0; f < F; ++f) {
    best[f] = -INFINITY;
    where[f] = 0;
  }
  for (int64_t p = 0; p < count; ++p)
    for (int64_t f = 0; f < F; ++f) {
      const T value = std::fma(values[p * F + f], alpha[f], beta[f]);
      // A NaN must come out, so the test is not `value > best`.
      const bool keep = value <= best[f];
      best[f] = keep ? best[f] : value;
      where[f] = keep ? where[f] : static_cast<int32_t>(p);
    }
  if (count < P)
    for (int64_t f = 0; f < F; ++f) {
      const bool keep = beta[f] <= best[f];
      best[f] = keep ? best[f] : beta[f];
      where[f] = keep ? where[f] : static_cast<int32_t>(count);
    }
  for (int64_t f = 0; f < F; ++f) best[f] = best[f] <= 0 ? T(0) : best[f];
}

// Function templates cannot be cloned for instruction sets.
#define MMTURBOX_PILLAR_LOOPS(T)                                             \
  MMTURBOX_CLONES void sums(const T* values, const int32_t* count,           \
                            int64_t M, int64_t P, int64_t F, int64_t begin,  \
                            int64_t end, double* sum) {                      \
    sum_loop(values, count, M, P, F, begin, end, sum);                       \
  }                                                                          \
  MMTURBOX_CLONES void squares(const T* values, const int32_t* count,        \
                               int64_t M, int64_t P, int64_t F,              \
                               int64_t begin, int64_t end, const T* mean,    \
                               double* sum) {                                \
    square_loop(values, count, M, P, F, begin, end, mean, sum);              \
  }                                                                          \
  MMTURBOX_CLONES void pool(const T* values, int64_t count, int64_t P,       \
                            int64_t F, const T* alpha, const T* beta,        \
                            T* best, int32_t* where) {                       \
    pool_loop(values, count, P, F, alpha, beta, best, where);                \
  }
MMTURBOX_PILLAR_LOOPS(float)
MMTURBOX_PILLAR_LOOPS(double)
#undef MMTURBOX_PILLAR_LOOPS

// Points that are there, at most P.
std::vector<int32_t> counts(const Tensor& num_points, int64_t P) {
  const int32_t* given = num_points.const_data_ptr<int32_t>();
  std::vector<int32_t> result(given, given + num_points.size(0));
  for (int32_t& one : result)
    one = std::clamp<int32_t>(one, 0, static_cast<int32_t>(P));
  return result;
}

template <typename T>
void fill_stats(const Tensor& values, const std::vector<int32_t>& count,
                T* mean, T* var_sum) {
  const int64_t M = values.size(0), P = values.size(1), F = values.size(2);
  const T* data = values.const_data_ptr<T>();
  torch::stable::parallel_for(0, F, 16, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(F, 0.);
    sums(data, count.data(), M, P, F, begin, end, sum.data());
    for (int64_t f = begin; f < end; ++f)
      mean[f] = static_cast<T>(sum[f] / (M * P));
    std::fill(sum.begin(), sum.end(), 0.);
    squares(data, count.data(), M, P, F, begin, end, mean, sum.data());
    for (int64_t f = begin; f < end; ++f) var_sum[f] = static_cast<T>(sum[f]);
  });
}

std::tuple<Tensor, Tensor> pillar_stats(const Tensor& values_in,
                                        const Tensor& num_points_in) {
  Tensor values = torch::stable::contiguous(values_in);
  Tensor num_points = torch::stable::contiguous(num_points_in);
  const std::vector<int32_t> count = counts(num_points, values.size(1));
  Tensor mean = torch::stable::new_empty(values, {values.size(2)});
  Tensor var_sum = torch::stable::new_empty(values, {values.size(2)});
  MMTURBOX_DISPATCH_FLOAT(values.scalar_type(), "pillar_stats", {
    fill_stats<scalar_t>(values, count, mean.mutable_data_ptr<scalar_t>(),
                         var_sum.mutable_data_ptr<scalar_t>());
  });
  return {mean, var_sum};
}

template <typename T>
void fill_pool(const Tensor& values, const std::vector<int32_t>& count,
               const T* alpha, const T* beta, T* pooled, int32_t* index) {
  const int64_t P = values.size(1), F = values.size(2);
  const T* data = values.const_data_ptr<T>();
  torch::stable::parallel_for(
      0, values.size(0), 256, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin; m < end; ++m)
          pool(data + m * P * F, count[m], P, F, alpha, beta, pooled + m * F,
               index + m * F);
      });
}

std::tuple<Tensor, Tensor> pillar_pool(const Tensor& values_in,
                                       const Tensor& num_points_in,
                                       const Tensor& mean_in,
                                       const Tensor& invstd_in,
                                       const Tensor& weight_in,
                                       const Tensor& bias_in) {
  Tensor values = torch::stable::contiguous(values_in);
  Tensor num_points = torch::stable::contiguous(num_points_in);
  Tensor mean = torch::stable::contiguous(mean_in);
  Tensor invstd = torch::stable::contiguous(invstd_in);
  Tensor weight = torch::stable::contiguous(weight_in);
  Tensor bias = torch::stable::contiguous(bias_in);
  const int64_t M = values.size(0), F = values.size(2);
  const std::vector<int32_t> count = counts(num_points, values.size(1));
  Tensor pooled = torch::stable::new_empty(values, {M, F});
  Tensor index = torch::stable::new_empty(values, {M, F}, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(values.scalar_type(), "pillar_pool", {
    std::vector<scalar_t> alpha(F), beta(F);
    for (int64_t f = 0; f < F; ++f) {
      alpha[f] = invstd.const_data_ptr<scalar_t>()[f] *
                 weight.const_data_ptr<scalar_t>()[f];
      beta[f] = std::fma(-mean.const_data_ptr<scalar_t>()[f], alpha[f],
                         bias.const_data_ptr<scalar_t>()[f]);
    }
    fill_pool<scalar_t>(values, count, alpha.data(), beta.data(),
                        pooled.mutable_data_ptr<scalar_t>(),
                        index.mutable_data_ptr<int32_t>());
  });
  return {pooled, index};
}

// Sums of one chunk of pillars.
struct Sums {
  std::vector<double> picked, moment, total;
};

template <typename T>
Sums chunk_sums(const Tensor& points, const std::vector<int32_t>& count,
                const int32_t* index, const T* grad, int64_t F, int64_t begin,
                int64_t end) {
  const int64_t P = points.size(1), K = points.size(2);
  const T* data = points.const_data_ptr<T>();
  Sums sums{std::vector<double>(F * K), std::vector<double>(K * K),
            std::vector<double>(K)};
  for (int64_t m = begin; m < end; ++m) {
    const T* rows = data + m * P * K;
    for (int64_t p = 0; p < count[m]; ++p)
      for (int64_t i = 0; i < K; ++i) {
        const double value = rows[p * K + i];
        sums.total[i] += value;
        for (int64_t j = 0; j < K; ++j)
          sums.moment[i * K + j] += value * rows[p * K + j];
      }
    for (int64_t f = 0; f < F; ++f) {
      const double g = grad[m * F + f];
      if (g == 0) continue;
      const T* row = rows + index[m * F + f] * K;
      for (int64_t k = 0; k < K; ++k) sums.picked[f * K + k] += g * row[k];
    }
  }
  return sums;
}

std::tuple<Tensor, Tensor, Tensor> pillar_grads(const Tensor& points_in,
                                                const Tensor& num_points_in,
                                                const Tensor& index_in,
                                                const Tensor& grad_in) {
  Tensor points = torch::stable::contiguous(points_in);
  Tensor num_points = torch::stable::contiguous(num_points_in);
  Tensor index = torch::stable::contiguous(index_in);
  Tensor grad = torch::stable::contiguous(grad_in);
  const int64_t M = points.size(0), K = points.size(2), F = grad.size(1);
  const std::vector<int32_t> count = counts(num_points, points.size(1));
  // A fixed number of chunks: the result must not depend on the threads.
  constexpr int64_t kChunks = 16;
  std::vector<Sums> parts(kChunks);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "pillar_grads", {
    torch::stable::parallel_for(
        0, kChunks, 1, [&](int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c)
            parts[c] = chunk_sums<scalar_t>(
                points, count, index.const_data_ptr<int32_t>(),
                grad.const_data_ptr<scalar_t>(), F, c * M / kChunks,
                (c + 1) * M / kChunks);
        });
  });
  const auto joined = [&](std::vector<int64_t> shape,
                          std::vector<double> Sums::*part) {
    Tensor out = torch::stable::new_zeros(points, shape, ScalarType::Double);
    double* data = out.mutable_data_ptr<double>();
    for (const Sums& one : parts)
      for (size_t i = 0; i < (one.*part).size(); ++i) data[i] += (one.*part)[i];
    return out;
  };
  return {joined({F, K}, &Sums::picked), joined({K, K}, &Sums::moment),
          joined({K}, &Sums::total)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("pillar_stats", TORCH_BOX(&pillar_stats));
  m.impl("pillar_pool", TORCH_BOX(&pillar_pool));
  m.impl("pillar_grads", TORCH_BOX(&pillar_grads));
}

}  // namespace mmturbox
