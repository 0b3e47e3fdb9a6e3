"""Weighted sum of three points' features (PointNet++, arXiv:1706.02413).

Definition: mmcv's ``three_interpolate``; beyond it, the weights have a
gradient too, and an index outside of the cloud counts as a feature of zero.
"""

import torch
from torch import Tensor

from ._library import define
from ._points import as_indices, check_alike, compute
from .group_points import gather_points_backward_reference
from .group_points import gather_points_reference as gather


def three_interpolate_reference(features: Tensor, indices: Tensor,
                                weight: Tensor) -> Tensor:
    features_, weight_ = compute(features), compute(weight)
    parts = [
        weight_[:, None, :, k] * gather(features_, indices[..., k])
        for k in range(3)
    ]
    return (parts[0] + parts[1] + parts[2]).to(features.dtype)


def three_interpolate_backward_reference(grad: Tensor, indices: Tensor,
                                         weight: Tensor,
                                         num_points: int) -> Tensor:
    shares = compute(grad)[..., None] * compute(weight)[:, None]
    return gather_points_backward_reference(
        shares.flatten(2), indices.flatten(1), num_points).to(grad.dtype)


def _setup_context(ctx, inputs, output):
    features, indices, weight = inputs
    ctx.num_points = features.shape[2]
    ctx.save_for_backward(indices, weight,
                          features if ctx.needs_input_grad[2] else None)


def _backward(ctx, grad):
    indices, weight, features = ctx.saved_tensors
    grad_features = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_features = three_interpolate_backward(grad, indices, weight,
                                                   ctx.num_points)
    if ctx.needs_input_grad[2]:
        taken = torch.ops.mmturbox.gather_points(features,
                                                 indices.flatten(1))
        taken = compute(taken).unflatten(2, indices.shape[1:])
        grad_weight = (compute(grad)[..., None] * taken).sum(1)
        grad_weight = grad_weight.to(weight.dtype)
    return grad_features, None, grad_weight


three_interpolate_backward = define(
    'three_interpolate_backward(Tensor grad, Tensor indices, Tensor weight, '
    'int num_points) -> Tensor',
    three_interpolate_backward_reference,
    fake=lambda grad, indices, weight, num_points: grad.new_empty(
        (*grad.shape[:2], num_points)))
_interpolate = define(
    'three_interpolate(Tensor features, Tensor indices, Tensor weight) -> '
    'Tensor',
    three_interpolate_reference,
    fake=lambda features, indices, weight: features.new_empty(
        (*features.shape[:2], indices.shape[1])),
    setup_context=_setup_context,
    backward=_backward)


def three_interpolate(features: Tensor, indices: Tensor,
                      weight: Tensor) -> Tensor:
    """Interpolate features by weights of three points each.

    Args:
        features: (B, C, M) floating.
        indices: (B, N, 3) int32 or int64; outside of [0, M) counts as zero.
        weight: (B, N, 3) in the dtype of ``features``.

    Returns:
        (B, C, N) in the dtype of ``features``; half precision is summed in
        float32 and rounded once.

    Raises:
        ValueError: on a wrong shape, dtype or device.

    Note:
        The gradient of ``features`` is deterministic on the CPU; on CUDA it
        is summed by atomics, in an order that varies.
    """
    if features.dim() != 3 or not features.is_floating_point():
        raise ValueError('features must be floating (B, C, M), got '
                         f'{features.dtype} {tuple(features.shape)}')
    if indices.dim() != 3 or indices.shape[2] != 3 or (
            len(indices) != len(features)) or weight.shape != indices.shape:
        raise ValueError(
            f'indices and weight must have shape ({len(features)}, N, 3), '
            f'got {tuple(indices.shape)} and {tuple(weight.shape)}')
    check_alike(features=features, weight=weight)
    return _interpolate(features, as_indices('indices', indices, features),
                        weight)
