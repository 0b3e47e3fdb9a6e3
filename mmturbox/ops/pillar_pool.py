"""Batch norm, ReLU and maximum over the points of each pillar, in one.

Pillars come as (M, P, F) with room for P points, most of it empty: rows
beyond ``num_points`` are zero. Statistics and the maximum include them, as in
mmdet3d's ``PFNLayer``. The native kernels do not touch them.

Definition: ``relu(batch_norm(values.transpose(1, 2))).max(-1)``. On a CPU the
native kernels equal torch's batch norm bit for bit (same order of sums, same
fused multiply-add).
"""

import torch
from torch import Tensor

from ._library import define


def pillar_stats_reference(values: Tensor,
                           num_points: Tensor) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(values.flatten(0, 1), 0, correction=0)
    return mean, var * (values.shape[0] * values.shape[1])


def pillar_pool_reference(values: Tensor, num_points: Tensor, mean: Tensor,
                          invstd: Tensor, weight: Tensor,
                          bias: Tensor) -> tuple[Tensor, Tensor]:
    alpha = invstd * weight
    beta = bias - mean * alpha
    pooled, index = (values * alpha + beta).max(1)
    return pooled.relu(), index.int()


def pillar_grads_reference(points: Tensor, num_points: Tensor, index: Tensor,
                           grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = points.double()
    chosen = index.long()[..., None].expand(-1, -1, points.shape[2])
    picked = (rows.gather(1, chosen) * grad.double()[..., None]).sum(0)
    flat = rows.flatten(0, 1)
    return picked, flat.t() @ flat, flat.sum(0)


def _grads_fake(points, num_points, index, grad):
    width, outputs = points.shape[2], grad.shape[1]
    return tuple(
        points.new_empty(shape, dtype=torch.float64)
        for shape in ((outputs, width), (width, width), (width, )))


_stats = define(
    'pillar_stats(Tensor values, Tensor num_points) -> (Tensor, Tensor)',
    pillar_stats_reference,
    fake=lambda values, num_points: tuple(
        values.new_empty(values.shape[2]) for _ in range(2)))
_pool = define(
    'pillar_pool(Tensor values, Tensor num_points, Tensor mean, '
    'Tensor invstd, Tensor weight, Tensor bias) -> (Tensor, Tensor)',
    pillar_pool_reference,
    fake=lambda values, num_points, mean, invstd, weight, bias:
    (values.new_empty((values.shape[0], values.shape[2])),
     values.new_empty(
         (values.shape[0], values.shape[2]), dtype=torch.int32)))
_grads = define(
    'pillar_grads(Tensor points, Tensor num_points, Tensor index, '
    'Tensor grad) -> (Tensor, Tensor, Tensor)',
    pillar_grads_reference,
    fake=_grads_fake)


def _check(values: Tensor, num_points: Tensor) -> None:
    if values.dim() != 3:
        raise ValueError('pillars must have shape (M, P, channels), got '
                         f'{tuple(values.shape)}')
    if num_points.shape != values.shape[:1] or (num_points.dtype
                                                != torch.int32):
        raise ValueError(
            f'num_points must be ({values.shape[0]},) int32, got '
            f'{tuple(num_points.shape)} {num_points.dtype}')


def pillar_stats(values: Tensor, num_points: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations of each channel.

    Args:
        values: (M, P, F) float32 or float64, zero beyond ``num_points``.
        num_points: (M,) int32.

    Returns:
        (F,) and (F,), over all M * P rows.

    Raises:
        ValueError: on a wrong shape or dtype.

    Note:
        Deterministic. No gradient.
    """
    _check(values, num_points)
    return _stats(values, num_points)


def pillar_pool(values: Tensor, num_points: Tensor, mean: Tensor,
                invstd: Tensor, weight: Tensor,
                bias: Tensor) -> tuple[Tensor, Tensor]:
    """Normalise, take the maximum over the points, cut off below zero.

    Args:
        values, num_points: as :func:`pillar_stats`.
        mean, invstd, weight, bias: (F,) in the values' dtype.

    Returns:
        (M, F) maxima, and (M, F) int32, the first point that has it.

    Raises:
        ValueError: on a wrong shape or dtype.

    Note:
        Deterministic. No gradient: see :func:`pillar_grads`.
    """
    _check(values, num_points)
    return _pool(values, num_points, mean, invstd, weight, bias)


def pillar_grads(points: Tensor, num_points: Tensor, index: Tensor,
                 grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of which the gradient of a linear layer before
    :func:`pillar_pool` is made.

    Args:
        points: (M, P, K), input of the linear layer; zero beyond
            ``num_points``.
        num_points: (M,) int32.
        index: (M, F) int32, from :func:`pillar_pool`.
        grad: (M, F) in the points' dtype, of the maxima.

    Returns:
        float64: (F, K) sum of gradient times chosen point, (K, K) sum of
        outer products of all points, (K,) sum of all points.

    Raises:
        ValueError: on a wrong shape or dtype.

    Note:
        Deterministic.
    """
    _check(points, num_points)
    if index.shape != grad.shape or index.shape[:1] != points.shape[:1]:
        raise ValueError(
            f'index and grad must be ({points.shape[0]}, F), got '
            f'{tuple(index.shape)} and {tuple(grad.shape)}')
    return _grads(points, num_points, index, grad)
