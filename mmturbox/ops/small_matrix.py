"""Inverses of small matrices and affine maps of points, in closed form.

Where ``torch.inverse`` factorises matrix by matrix and asks the host whether
one was singular, these expand by minors, all matrices in one pass. Arithmetic
is in float64 whatever the dtype. For float32 the result is then that of a
float64 inverse, rounded, up to a condition number of about 1e7, and better
than that of ``torch.linalg.inv`` in float32. For float64 an expansion loses
more digits than a factorisation does: the error grows with the square of the
condition number (1e-16 times it, or less).

A singular matrix gives infinities or NaN, not an error; one that is singular
but for rounding gives huge values, as it does everywhere.
"""

import torch
from torch import Tensor

from ._library import define

_GENERAL, _AFFINE, _RIGID = range(3)


def _extended(matrices: Tensor, last: float) -> Tensor:
    """(M, 3 or 4, 4) -> (M, 4, 4) float64 with last row 0 0 0 ``last``."""
    out = matrices.new_zeros(len(matrices), 4, 4, dtype=torch.float64)
    out[:, :3] = matrices[:, :3]
    out[:, 3, 3] = last
    return out


def _adjugate(a: Tensor) -> Tensor:
    """(M, n, n) -> (M, n, n): transposed cofactors."""
    size = a.shape[1]
    rows = []
    for i in range(size):
        for j in range(size):
            keep = [[k for k in range(size) if k != skip] for skip in (j, i)]
            minor = a[:, keep[0]][:, :, keep[1]]
            rows.append((-1)**(i + j) * _determinant(minor))
    return torch.stack(rows, 1).view(a.shape)


def _determinant(a: Tensor) -> Tensor:
    if a.shape[1] == 1:
        return a[:, 0, 0]
    if a.shape[1] == 2:
        return a[:, 0, 0] * a[:, 1, 1] - a[:, 0, 1] * a[:, 1, 0]
    return (a[:, 0, 0] * _determinant(a[:, 1:, 1:]) -
            a[:, 0, 1] * _determinant(a[:, 1:][:, :, [0, 2]]) +
            a[:, 0, 2] * _determinant(a[:, 1:, :2]))


def _invert(a: Tensor) -> Tensor:
    adjugate = _adjugate(a)
    determinant = (a[:, 0, :] * adjugate[:, :, 0]).sum(1)
    return adjugate / determinant[:, None, None]


def small_inverse_reference(matrices: Tensor, kind: int) -> Tensor:
    if kind == _GENERAL:
        return _invert(matrices.double()).to(matrices.dtype)
    whole = _extended(matrices, 1.0)
    part = whole[:, :3, :3]
    whole[:, :3, :3] = (_invert(part)
                        if kind == _AFFINE else part.transpose(1, 2).clone())
    whole[:, :3, 3] = -(whole[:, :3, :3] @ whole[:, :3, 3:])[:, :, 0]
    return whole[:, :matrices.shape[1]].to(matrices.dtype)


def small_inverse_backward_reference(grad: Tensor, inverse: Tensor,
                                     kind: int) -> Tensor:
    if kind == _GENERAL:
        turned = inverse.double().transpose(1, 2)
        return (-turned @ grad.double() @ turned).to(grad.dtype)
    whole = _extended(inverse, 1.0)
    turned, whole_grad = whole.transpose(1, 2), _extended(grad, 0.0)
    if kind == _AFFINE:
        out = -turned @ whole_grad @ turned
    else:
        rotation, to_t = turned[:, :3, :3], whole_grad[:, :3, 3:]
        t = -rotation @ whole[:, :3, 3:]
        out = torch.zeros_like(whole)
        out[:, :3, :3] = (whole_grad[:, :3, :3].transpose(1, 2) -
                          t @ to_t.transpose(1, 2))
        out[:, :3, 3:] = -rotation @ to_t
    out[:, 3] = 0
    return out[:, :grad.shape[1]].to(grad.dtype)


def _composed(matrices: Tensor) -> Tensor:
    """(B, K, 3 or 4, 4) -> (B, 4, 4) float64."""
    product = torch.eye(4, dtype=torch.float64, device=matrices.device)
    product = product.repeat(len(matrices), 1, 1)
    for k in range(matrices.shape[1]):
        product = product @ _extended(matrices[:, k], 1.0)
    return product


def apply_affine_reference(points: Tensor, matrices: Tensor) -> Tensor:
    compute = torch.promote_types(points.dtype, torch.float32)
    m = _composed(matrices.to(compute))[:, None].to(compute)
    x, y, z = points.to(compute)[..., None].unbind(2)
    out = (m[..., :3, 0] * x + m[..., :3, 1] * y + m[..., :3, 2] * z +
           m[..., :3, 3])
    return out.to(points.dtype)


def apply_affine_backward_reference(
        grad: Tensor, points: Tensor, matrices: Tensor, to_points: bool,
        to_matrices: bool) -> tuple[Tensor, Tensor]:
    compute = torch.promote_types(points.dtype, torch.float32)
    matrices = matrices.to(compute)
    grad_points = points.new_empty(0)
    grad_matrices = points.new_empty(0)
    if to_points:
        rotation = _composed(matrices)[:, :3, :3].to(compute)
        grad_points = (grad.to(compute) @ rotation).to(points.dtype)
    if to_matrices:
        ones = points.new_ones(*points.shape[:2], 1)
        whole = torch.cat((points, ones), 2).double()
        of_product = torch.zeros_like(_composed(matrices))
        of_product[:, :3] = grad.double().transpose(1, 2) @ whole
        factors = []
        for k in range(matrices.shape[1]):
            before = _composed(matrices[:, :k]).transpose(1, 2)
            after = _composed(matrices[:, k + 1:]).transpose(1, 2)
            of_factor = before @ of_product @ after
            of_factor[:, 3] = 0
            factors.append(of_factor[:, :matrices.shape[2]])
        grad_matrices = torch.stack(factors, 1).to(points.dtype)
    return grad_points, grad_matrices


def _setup_inverse(ctx, inputs, output):
    ctx.kind = inputs[1]
    ctx.save_for_backward(output)


def _inverse_backward(ctx, grad):
    inverse, = ctx.saved_tensors
    return small_inverse_backward(grad, inverse, ctx.kind), None


def _setup_apply(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _apply_backward(ctx, grad):
    needed = ctx.needs_input_grad[:2]
    grads = apply_affine_backward(grad, *ctx.saved_tensors, *needed)
    return tuple(one if need else None
                 for one, need in zip(grads, needed, strict=True))


def _fake_apply_backward(grad, points, matrices, to_points, to_matrices):
    return (points.new_empty(points.shape if to_points else (0, )),
            points.new_empty(matrices.shape if to_matrices else (0, )))


small_inverse_backward = define(
    'small_inverse_backward(Tensor grad, Tensor inverse, int kind) -> Tensor',
    small_inverse_backward_reference,
    fake=lambda grad, inverse, kind: grad.new_empty(grad.shape))
_inverse = define(
    'small_inverse(Tensor matrices, int kind) -> Tensor',
    small_inverse_reference,
    fake=lambda matrices, kind: matrices.new_empty(matrices.shape),
    setup_context=_setup_inverse,
    backward=_inverse_backward)
apply_affine_backward = define(
    'apply_affine_backward(Tensor grad, Tensor points, Tensor matrices, '
    'bool to_points, bool to_matrices) -> (Tensor, Tensor)',
    apply_affine_backward_reference,
    fake=_fake_apply_backward)
_apply = define(
    'apply_affine(Tensor points, Tensor matrices) -> Tensor',
    apply_affine_reference,
    fake=lambda points, matrices: points.new_empty(points.shape),
    setup_context=_setup_apply,
    backward=_apply_backward)


def _of_kind(matrices: Tensor, kind: int) -> Tensor:
    rows, columns = matrices.shape[-2:] if matrices.dim() > 1 else (0, 0)
    if kind == _GENERAL:
        fits, wanted = rows == columns and 2 <= rows <= 4, 'n, n), n from 2'
    else:
        fits, wanted = columns == 4 and rows in (3, 4), '3 or 4, 4), n = 4'
    if not fits or not matrices.is_floating_point():
        raise ValueError(f'matrices must be floating (..., {wanted} to 4, got '
                         f'{matrices.dtype} {tuple(matrices.shape)}')
    flat = matrices.reshape(matrices.shape[:-2].numel(), rows, columns)
    return _inverse(flat, kind).view(matrices.shape)


def small_inverse(matrices: Tensor) -> Tensor:
    """Inverses of 2 x 2, 3 x 3 or 4 x 4 matrices.

    Args:
        matrices: (..., n, n) floating, n from 2 to 4.

    Returns:
        (..., n, n) of the same dtype; see the module for its accuracy and
        for singular matrices.

    Raises:
        ValueError: on a wrong shape or dtype.

    Note:
        Deterministic. Once differentiable. No host synchronisation.
    """
    return _of_kind(matrices, _GENERAL)


def affine_inverse(matrices: Tensor) -> Tensor:
    """Inverses of affine matrices ``[A t; 0 0 0 1]``.

    Args:
        matrices: (..., 4, 4), or (..., 3, 4) without the last row, which is
            not read and has no gradient.

    Returns:
        As given, ``[A^-1  -A^-1 t; 0 0 0 1]``.

    Errors and notes as :func:`small_inverse`.
    """
    return _of_kind(matrices, _AFFINE)


def rigid_inverse(matrices: Tensor) -> Tensor:
    """Inverses of rotations with translations, ``[R^T  -R^T t; 0 0 0 1]``.

    That R is a rotation is not checked. Arguments, result, errors and notes
    as :func:`affine_inverse`; the gradient is that of the formula.
    """
    return _of_kind(matrices, _RIGID)


def apply_affine(points: Tensor, matrices: Tensor) -> Tensor:
    """Map points by a product of affine matrices, in one pass.

    Equals ``M[0] @ M[1] @ ... @ M[K - 1]`` applied to ``(x, y, z, 1)``; the
    product is taken in float64.

    Args:
        points: (B, N, 3) floating.
        matrices: (B, K, 4, 4), or (B, K, 3, 4) without the last rows, of the
            same dtype; a last row counts as 0 0 0 1 and has no gradient.

    Returns:
        (B, N, 3) of the same dtype.

    Raises:
        ValueError: on a shape, dtype or device mismatch.

    Note:
        Deterministic, forward and backward. Once differentiable, by points
        and matrices. No host synchronisation.
    """
    if points.dim() != 3 or points.shape[2] != 3:
        raise ValueError('points must have shape (B, N, 3), got '
                         f'{tuple(points.shape)}')
    if (matrices.dim() != 4 or matrices.shape[0] != len(points)
            or matrices.shape[2] not in (3, 4) or matrices.shape[3] != 4):
        raise ValueError('matrices must have shape (B, K, 3 or 4, 4) with B = '
                         f'{len(points)}, got {tuple(matrices.shape)}')
    if (points.dtype != matrices.dtype or points.device != matrices.device
            or not points.is_floating_point()):
        raise ValueError(
            'points and matrices must share device and floating dtype, got '
            f'{points.device} {points.dtype} and {matrices.device} '
            f'{matrices.dtype}')
    return _apply(points, matrices)
