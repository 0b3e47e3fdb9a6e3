// Bindings of small_matrix.cu.
#include "small_matrix.h"

#include <tuple>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

Tensor small_inverse(const Tensor& matrices_in, int64_t kind) {
  const Launch launch(matrices_in);
  const Tensor matrices = compute_tensor(matrices_in);
  Tensor out = torch::stable::empty_like(matrices);
  MMTURBOX_DISPATCH_FLOAT(matrices.scalar_type(), "small_inverse", {
    small_inverse_cuda(matrices.const_data_ptr<scalar_t>(),
                       static_cast<InverseKind>(kind), matrices.size(0),
                       matrices.size(1), matrices.size(2),
                       out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, matrices_in.scalar_type());
}

Tensor small_inverse_backward(const Tensor& grad_in, const Tensor& inverse_in,
                              int64_t kind) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor inverse = torch::stable::contiguous(
      in_type(inverse_in, grad.scalar_type()));
  Tensor out = torch::stable::empty_like(grad);
  MMTURBOX_DISPATCH_FLOAT(grad.scalar_type(), "small_inverse_backward", {
    small_inverse_backward_cuda(
        grad.const_data_ptr<scalar_t>(), inverse.const_data_ptr<scalar_t>(),
        static_cast<InverseKind>(kind), grad.size(0), grad.size(1),
        grad.size(2), out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, grad_in.scalar_type());
}

AffineShape shape_of(const Tensor& points, const Tensor& matrices) {
  return {points.size(0), points.size(1), matrices.size(1),
          matrices.size(2) * 4};
}

Tensor apply_affine(const Tensor& points_in, const Tensor& matrices_in) {
  const Launch launch(points_in);
  const Tensor points = compute_tensor(points_in);
  const Tensor matrices = torch::stable::contiguous(
      in_type(matrices_in, points.scalar_type()));
  Tensor out = torch::stable::empty_like(points);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "apply_affine", {
    apply_affine_cuda(points.const_data_ptr<scalar_t>(),
                      matrices.const_data_ptr<scalar_t>(),
                      shape_of(points, matrices),
                      out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, points_in.scalar_type());
}

std::tuple<Tensor, Tensor> apply_affine_backward(
    const Tensor& grad_in, const Tensor& points_in, const Tensor& matrices_in,
    bool to_points, bool to_matrices) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const ScalarType type = grad.scalar_type();
  const Tensor points = torch::stable::contiguous(in_type(points_in, type));
  const Tensor matrices =
      torch::stable::contiguous(in_type(matrices_in, type));
  const AffineShape shape = shape_of(points, matrices);
  const int64_t parts =
      (shape.points + kAffinePoints - 1) / kAffinePoints * shape.samples;
  Tensor grad_points = to_points ? torch::stable::empty_like(points)
                                 : torch::stable::new_empty(points, {0});
  Tensor grad_matrices =
      to_matrices ? torch::stable::new_zeros(
                        matrices, {shape.samples, shape.factors,
                                   matrices.size(2), 4})
                  : torch::stable::new_empty(matrices, {0});
  Tensor sums = torch::stable::new_empty(
      points, {to_matrices ? parts * 12 : 0}, ScalarType::Double);
  MMTURBOX_DISPATCH_FLOAT(type, "apply_affine_backward", {
    apply_affine_backward_cuda(
        grad.const_data_ptr<scalar_t>(), points.const_data_ptr<scalar_t>(),
        matrices.const_data_ptr<scalar_t>(), shape,
        to_points ? grad_points.mutable_data_ptr<scalar_t>() : nullptr,
        to_matrices ? grad_matrices.mutable_data_ptr<scalar_t>() : nullptr,
        to_matrices ? sums.mutable_data_ptr<double>() : nullptr, launch);
  });
  return {in_type(grad_points, points_in.scalar_type()),
          in_type(grad_matrices, matrices_in.scalar_type())};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("small_inverse", TORCH_BOX(&small_inverse));
  m.impl("small_inverse_backward", TORCH_BOX(&small_inverse_backward));
  m.impl("apply_affine", TORCH_BOX(&apply_affine));
  m.impl("apply_affine_backward", TORCH_BOX(&apply_affine_backward));
}

}  // namespace mmturbox
