// CPU kernels of small inverses and of affine matrices applied to points.
#include "../common/small_matrix.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {
namespace {

// Matrices that are inverted together, interleaved.
constexpr int kLanes = 8;
constexpr int64_t kChunk = 64 * kLanes;

template <int kSize, typename T>
inline __attribute__((always_inline)) void interleave(const T* from,
                                                      double* to) {
  for (int k = 0; k < kSize; ++k)
    for (int i = 0; i < kLanes; ++i)
      to[k * kLanes + i] = static_cast<double>(from[i * kSize + k]);
}

template <int kSize, typename T>
inline __attribute__((always_inline)) void separate(const double* from,
                                                    T* to) {
  for (int i = 0; i < kLanes; ++i)
    for (int k = 0; k < kSize; ++k)
      to[i * kSize + k] = static_cast<T>(from[k * kLanes + i]);
}

// Exactly kLanes matrices of `rows` rows.
template <typename T>
inline __attribute__((always_inline)) void invert_group(
    InverseKind kind, int64_t rows, int64_t columns, const T* from, T* to) {
  using M = Matrices<kLanes>;
  alignas(64) double a[16 * kLanes], out[16 * kLanes];
#define GROUP(SIZE, CALL)                                         \
  do {                                                            \
    interleave<SIZE>(from, a);                                    \
    for (int i = 0; i < kLanes; ++i) M::CALL(a + i, out + i);     \
    separate<SIZE>(out, to);                                      \
  } while (0)
  if (kind == InverseKind::kAffine && rows == 3)
    GROUP(12, affine);
  else if (kind == InverseKind::kAffine)
    GROUP(16, affine);
  else if (kind == InverseKind::kRigid && rows == 3)
    GROUP(12, rigid);
  else if (kind == InverseKind::kRigid)
    GROUP(16, rigid);
  else if (columns == 2)
    GROUP(4, inverse2);
  else if (columns == 3)
    GROUP(9, template inverse3<3>);
  else
    GROUP(16, inverse4);
#undef GROUP
}

// Flat: a call in a loop over lanes would keep it from being vectorised.
MMTURBOX_CLONES __attribute__((flatten)) void invert_lanes(InverseKind kind, int64_t rows,
                                  int64_t columns, const float* from,
                                  float* to) {
  invert_group(kind, rows, columns, from, to);
}

void invert_lanes(InverseKind kind, int64_t rows, int64_t columns,
                  const double* from, double* to) {
  invert_group(kind, rows, columns, from, to);
}

Tensor small_inverse(const Tensor& matrices_in, int64_t kind) {
  const Tensor matrices = compute_tensor(matrices_in);
  const int64_t rows = matrices.size(1), columns = matrices.size(2);
  const int64_t M = matrices.size(0), size = rows * columns;
  Tensor out = torch::stable::empty_like(matrices);
  MMTURBOX_DISPATCH_FLOAT(matrices.scalar_type(), "small_inverse", {
    const scalar_t* from = matrices.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, M, kChunk, [&](int64_t begin,
                                                  int64_t end) {
      for (int64_t m = begin; m < end; m += kLanes) {
        const InverseKind which = static_cast<InverseKind>(kind);
        if (end - m >= kLanes) {
          invert_lanes(which, rows, columns, from + m * size, to + m * size);
          continue;
        }
        scalar_t last[16 * kLanes] = {};
        std::copy_n(from + m * size, (end - m) * size, last);
        invert_lanes(which, rows, columns, last, last);
        std::copy_n(last, (end - m) * size, to + m * size);
      }
    });
  });
  return in_type(out, matrices_in.scalar_type());
}

Tensor small_inverse_backward(const Tensor& grad_in, const Tensor& inverse_in,
                              int64_t kind_in) {
  const Tensor grad = compute_tensor(grad_in);
  const Tensor inverse = torch::stable::contiguous(
      in_type(inverse_in, grad.scalar_type()));
  const InverseKind kind = static_cast<InverseKind>(kind_in);
  const int64_t columns = grad.size(2), size = grad.size(1) * columns;
  // The last row of these is fixed.
  const int64_t free = kind == InverseKind::kGeneral ? size : 12;
  Tensor out = torch::stable::new_zeros(
      grad, {grad.size(0), grad.size(1), columns});
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "small_inverse_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    const scalar_t* at = inverse.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(
        0, grad.size(0), kChunk, [&](int64_t begin, int64_t end) {
          double g[16] = {}, a[16] = {}, result[16];
          if (kind != InverseKind::kGeneral) a[15] = 1;
          for (int64_t m = begin; m < end; ++m) {
            std::copy_n(from + m * size, free, g);
            std::copy_n(at + m * size, free, a);
            invert_backward<1>(kind, columns, g, a, result);
            for (int64_t k = 0; k < free; ++k)
              to[m * size + k] = static_cast<scalar_t>(result[k]);
          }
        });
  });
  return in_type(out, grad_in.scalar_type());
}

// Points that a thread takes at a time; sums are taken chunk by chunk.
constexpr int64_t kPoints = 2048;

MMTURBOX_CLONES void apply(const float* points, const float* m, int64_t count,
                           float* out) {
  for (int64_t n = 0; n < count; ++n) {
    const float x = points[3 * n], y = points[3 * n + 1],
                z = points[3 * n + 2];
    for (int r = 0; r < 3; ++r)
      out[3 * n + r] =
          m[4 * r] * x + m[4 * r + 1] * y + m[4 * r + 2] * z + m[4 * r + 3];
  }
}

void apply(const double* points, const double* m, int64_t count,
           double* out) {
  for (int64_t n = 0; n < count; ++n)
    for (int r = 0; r < 3; ++r)
      out[3 * n + r] = m[4 * r] * points[3 * n] +
                       m[4 * r + 1] * points[3 * n + 1] +
                       m[4 * r + 2] * points[3 * n + 2] + m[4 * r + 3];
}

// body(sample, chunk, first point, points) for all chunks of all samples.
template <typename F>
void for_each_chunk(int64_t samples, int64_t points, F body) {
  const int64_t chunks = (points + kPoints - 1) / kPoints;
  torch::stable::parallel_for(
      0, samples * chunks, 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % chunks * kPoints;
          body(i / chunks, i, i / chunks * points + first,
               std::min(kPoints, points - first));
        }
      });
}

Tensor apply_affine(const Tensor& points_in, const Tensor& matrices_in) {
  const Tensor points = compute_tensor(points_in);
  const Tensor matrices = torch::stable::contiguous(
      in_type(matrices_in, points.scalar_type()));
  const int64_t K = matrices.size(1), size = matrices.size(2) * 4;
  Tensor out = torch::stable::empty_like(points);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "apply_affine", {
    const scalar_t* from = points.const_data_ptr<scalar_t>();
    const scalar_t* matrix = matrices.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for_each_chunk(
        points.size(0), points.size(1),
        [&](int64_t b, int64_t, int64_t first, int64_t count) {
          scalar_t m[12];
          std::copy_n(compose(matrix + b * K * size, K, size).m, 12, m);
          apply(from + 3 * first, m, count, to + 3 * first);
        });
  });
  return in_type(out, points_in.scalar_type());
}

// sum[4 r + c] of grad[r] * (x, y, z, 1)[c] over the points.
template <typename T>
void sum_outer(const T* grad, const T* points, int64_t count, double* sum) {
  std::fill(sum, sum + 12, 0.0);
  for (int64_t n = 0; n < count; ++n)
    for (int r = 0; r < 3; ++r) {
      const double g = grad[3 * n + r];
      for (int c = 0; c < 3; ++c) sum[4 * r + c] += g * points[3 * n + c];
      sum[4 * r + 3] += g;
    }
}

std::tuple<Tensor, Tensor> apply_affine_backward(
    const Tensor& grad_in, const Tensor& points_in, const Tensor& matrices_in,
    bool to_points, bool to_matrices) {
  const Tensor grad = compute_tensor(grad_in);
  const ScalarType type = grad.scalar_type();
  const Tensor points = torch::stable::contiguous(in_type(points_in, type));
  const Tensor matrices =
      torch::stable::contiguous(in_type(matrices_in, type));
  const int64_t B = points.size(0), N = points.size(1);
  const int64_t K = matrices.size(1), size = matrices.size(2) * 4;
  const int64_t chunks = (N + kPoints - 1) / kPoints;
  Tensor grad_points = to_points ? torch::stable::empty_like(points)
                                 : torch::stable::new_empty(points, {0});
  Tensor grad_matrices =
      to_matrices
          ? torch::stable::new_zeros(matrices, {B, K, matrices.size(2), 4})
          : torch::stable::new_empty(matrices, {0});
  std::vector<Affine> sums(to_matrices ? B * chunks : 0);
  MMTURBOX_DISPATCH_FLOAT(type, "apply_affine_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    const scalar_t* at = points.const_data_ptr<scalar_t>();
    const scalar_t* matrix = matrices.const_data_ptr<scalar_t>();
    scalar_t* to = grad_points.mutable_data_ptr<scalar_t>();
    for_each_chunk(
        B, N, [&](int64_t b, int64_t chunk, int64_t first, int64_t count) {
          if (to_matrices)
            sum_outer(from + 3 * first, at + 3 * first, count,
                      sums[chunk].m);
          if (!to_points) return;
          const Affine product = compose(matrix + b * K * size, K, size);
          scalar_t m[12] = {};
          for (int r = 0; r < 3; ++r)
            for (int c = 0; c < 3; ++c)
              m[4 * r + c] = static_cast<scalar_t>(product.m[4 * c + r]);
          apply(from + 3 * first, m, count, to + 3 * first);
        });
    scalar_t* to_matrix = grad_matrices.mutable_data_ptr<scalar_t>();
    for (int64_t b = 0; to_matrices && b < B; ++b) {
      Affine sum{};
      for (int64_t i = b * chunks; i < (b + 1) * chunks; ++i)
        for (int k = 0; k < 12; ++k) sum.m[k] += sums[i].m[k];
      for (int64_t k = 0; k < K; ++k)
        std::copy_n(
            factor_grad(sum, matrix + b * K * size, K, size, k).m, 12,
            to_matrix + (b * K + k) * size);
    }
  });
  return {in_type(grad_points, points_in.scalar_type()),
          in_type(grad_matrices, matrices_in.scalar_type())};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("small_inverse", TORCH_BOX(&small_inverse));
  m.impl("small_inverse_backward", TORCH_BOX(&small_inverse_backward));
  m.impl("apply_affine", TORCH_BOX(&apply_affine));
  m.impl("apply_affine_backward", TORCH_BOX(&apply_affine_backward));
}

}  // namespace mmturbox
