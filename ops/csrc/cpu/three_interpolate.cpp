// CPU kernels of mmturbox::three_interpolate and its backward.
#include <algorithm>

#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {
namespace {

int64_t grain(int64_t row) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(row, 1));
}

template <typename T>
inline __attribute__((always_inline)) void interpolate_loop(
    const T* row, const int32_t* index, const T* weight, int64_t m, int64_t n,
    T* out) {
  for (int64_t i = 0; i < n; ++i) {
    T part[3];
    for (int k = 0; k < 3; ++k) {
      const uint32_t at = static_cast<uint32_t>(index[i * 3 + k]);
      const T value = at < static_cast<uint64_t>(m) ? row[at] : T(0);
      part[k] = weight[i * 3 + k] * value;
    }
    out[i] = part[0] + part[1] + part[2];
  }
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES void interpolate_row(const T* row, const int32_t* index,  \
                                       const T* weight, int64_t m,          \
                                       int64_t n, T* out) {                 \
    interpolate_loop(row, index, weight, m, n, out);                        \
  }
MMTURBOX_LOOPS(float)
MMTURBOX_LOOPS(double)
#undef MMTURBOX_LOOPS

Tensor three_interpolate(const Tensor& features_in, const Tensor& indices_in,
                         const Tensor& weight_in) {
  const Tensor features = compute_tensor(features_in);
  const Tensor weight = compute_tensor(weight_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = features.size(0), C = features.size(1);
  const int64_t M = features.size(2), N = indices.size(1);
  Tensor out = torch::stable::new_empty(features, {B, C, N});
  const int32_t* index = indices.const_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "three_interpolate", {
    const scalar_t* from = features.const_data_ptr<scalar_t>();
    const scalar_t* w = weight.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(
        0, B * C, grain(N), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const int64_t at = r / C * N * 3;
            interpolate_row(from + r * M, index + at, w + at, M, N,
                            to + r * N);
          }
        });
  });
  return in_type(out, features_in.scalar_type());
}

// A thread owns rows (a sample's channel) and adds in the order of indices.
Tensor three_interpolate_backward(const Tensor& grad_in,
                                  const Tensor& indices_in,
                                  const Tensor& weight_in, int64_t M) {
  const Tensor grad = compute_tensor(grad_in);
  const Tensor weight = compute_tensor(weight_in);
  const Tensor indices = torch::stable::contiguous(indices_in);
  const int64_t B = grad.size(0), C = grad.size(1), N = grad.size(2);
  Tensor out = torch::stable::new_zeros(grad, {B, C, M});
  const int32_t* index = indices.const_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "three_interpolate_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    const scalar_t* w = weight.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(
        0, B * C, grain(N), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r)
            for (int64_t i = 0; i < N * 3; ++i) {
              const int64_t at = r / C * N * 3 + i;
              if (index[at] >= 0 && index[at] < M)
                to[r * M + index[at]] += from[r * N + i / 3] * w[at];
            }
        });
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("three_interpolate", TORCH_BOX(&three_interpolate));
  m.impl("three_interpolate_backward",
         TORCH_BOX(&three_interpolate_backward));
}

}  // namespace mmturbox
