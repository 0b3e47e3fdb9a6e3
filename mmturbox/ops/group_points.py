"""Gathering and grouping of point features (PointNet++, arXiv:1706.02413).

Definition: mmcv's ``gather_points`` and ``grouping_operation``, with one
difference: an index outside of the cloud gives zero and gets no gradient,
where mmcv reads out of bounds. -1 is what a stacked ball query gives an empty
ball.
"""

import torch
from torch import Tensor

from ._library import define
from ._points import as_indices, compute
from .ball_query import check_counts


def gather_points_reference(features: Tensor, indices: Tensor) -> Tensor:
    num_points = features.shape[2]
    if num_points == 0:
        return features.new_zeros((*features.shape[:2], indices.shape[1]))
    inside = (indices >= 0) & (indices < num_points)
    index = torch.where(inside, indices, 0).long()[:, None]
    gathered = features.gather(2, index.expand(-1, features.shape[1], -1))
    return torch.where(inside[:, None], gathered, 0)


def gather_points_backward_reference(grad: Tensor, indices: Tensor,
                                     num_points: int) -> Tensor:
    # One place more takes what came from outside.
    out = compute(grad).new_zeros((*grad.shape[:2], num_points + 1))
    inside = (indices >= 0) & (indices < num_points)
    index = torch.where(inside, indices, num_points).long()[:, None]
    out.scatter_add_(2, index.expand_as(grad), compute(grad))
    return out[..., :-1].to(grad.dtype, copy=True,
                            memory_format=torch.contiguous_format)


def _rows(features: Tensor, feature_counts: Tensor, indices: Tensor,
          index_counts: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of ``features`` (M, S), and whether they are in the sample."""
    ends = feature_counts.cumsum(0)
    owner = torch.searchsorted(
        index_counts.cumsum(0),
        torch.arange(len(indices), device=ends.device), right=True)
    starts = torch.cat([ends.new_zeros(1), ends])[owner]
    ends = torch.cat([ends, ends.new_zeros(1)])[owner]
    rows = indices + starts[:, None]
    inside = ((indices >= 0) & (rows < ends[:, None])
              & (rows < len(features)))
    return rows, inside


def group_points_stacked_reference(features: Tensor, feature_counts: Tensor,
                                   indices: Tensor,
                                   index_counts: Tensor) -> Tensor:
    rows, inside = _rows(features, feature_counts, indices, index_counts)
    if len(features) == 0:
        return features.new_zeros(
            (len(indices), features.shape[1], indices.shape[1]))
    grouped = features[torch.where(inside, rows, 0)]
    grouped = torch.where(inside[..., None], grouped, 0)
    return grouped.transpose(1, 2).contiguous()


def group_points_stacked_backward_reference(grad: Tensor,
                                            feature_counts: Tensor,
                                            indices: Tensor,
                                            index_counts: Tensor,
                                            num_features: int) -> Tensor:
    out = compute(grad).new_zeros((num_features + 1, grad.shape[1]))
    rows, inside = _rows(out[:-1], feature_counts, indices, index_counts)
    rows = torch.where(inside, rows, num_features).flatten()
    out.index_add_(0, rows, compute(grad).transpose(1, 2).flatten(0, 1))
    return out[:-1].to(grad.dtype, copy=True)


def _setup_gather(ctx, inputs, output):
    features, indices = inputs
    ctx.num_points = features.shape[2]
    ctx.save_for_backward(indices)


def _setup_stacked(ctx, inputs, output):
    features, *rest = inputs
    ctx.num_features = len(features)
    ctx.save_for_backward(*rest)


gather_points_backward = define(
    'gather_points_backward(Tensor grad, Tensor indices, int num_points) -> '
    'Tensor',
    gather_points_backward_reference,
    fake=lambda grad, indices, num_points: grad.new_empty(
        (*grad.shape[:2], num_points)))
_gather = define(
    'gather_points(Tensor features, Tensor indices) -> Tensor',
    gather_points_reference,
    fake=lambda features, indices: features.new_empty(
        (*features.shape[:2], indices.shape[1])),
    setup_context=_setup_gather,
    backward=lambda ctx, grad: (gather_points_backward(
        grad, ctx.saved_tensors[0], ctx.num_points), None))
group_points_stacked_backward = define(
    'group_points_stacked_backward(Tensor grad, Tensor feature_counts, '
    'Tensor indices, Tensor index_counts, int num_features) -> Tensor',
    group_points_stacked_backward_reference,
    fake=lambda grad, counts, indices, index_counts, num_features: grad.
    new_empty((num_features, grad.shape[1])))
_stacked = define(
    'group_points_stacked(Tensor features, Tensor feature_counts, '
    'Tensor indices, Tensor index_counts) -> Tensor',
    group_points_stacked_reference,
    fake=lambda features, counts, indices, index_counts: features.new_empty(
        (len(indices), features.shape[1], indices.shape[1])),
    setup_context=_setup_stacked,
    backward=lambda ctx, grad: (group_points_stacked_backward(
        grad, *ctx.saved_tensors, ctx.num_features), None, None, None))


def _check(features: Tensor, indices: Tensor, dims: int) -> None:
    if features.dim() != 3 or not features.is_floating_point():
        raise ValueError('features must be floating (B, C, N), got '
                         f'{features.dtype} {tuple(features.shape)}')
    if indices.dim() != dims or len(indices) != len(features):
        raise ValueError(
            f'indices must have {dims} dimensions and a batch of '
            f'{len(features)}, got {tuple(indices.shape)}')


def gather_points(features: Tensor, indices: Tensor) -> Tensor:
    """Take points by their indices.

    Args:
        features: (B, C, N) floating.
        indices: (B, M) int32 or int64; outside of [0, N) gives zero.

    Returns:
        (B, C, M) in the dtype of ``features``.

    Raises:
        ValueError: on a wrong shape, dtype or device.

    Note:
        The gradient is summed in float32 or wider. It is deterministic on
        the CPU; on CUDA it is summed by atomics, in an order that varies.
    """
    _check(features, indices, 2)
    return _gather(features, as_indices('indices', indices, features))


def group_points(features: Tensor,
                 indices: Tensor,
                 features_batch_cnt: Tensor | None = None,
                 indices_batch_cnt: Tensor | None = None) -> Tensor:
    """Take groups of points; signature as mmcv's ``grouping_operation``.

    Args:
        features: (B, C, N) floating, or stacked (N1 + N2 + ..., C).
        indices: (B, M, S) int32 or int64, or stacked (M1 + M2 + ..., S),
            counted from the start of the sample; outside gives zero.
        features_batch_cnt: (B,) int32, N1, N2, ...; for the stacked form.
        indices_batch_cnt: (B,) int32, M1, M2, ...

    Returns:
        (B, C, M, S), or stacked (M1 + M2 + ..., C, S).

    Raises:
        ValueError: on a wrong shape, dtype or device.

    Note:
        Gradients as in :func:`gather_points`.
    """
    if (features_batch_cnt is None) != (indices_batch_cnt is None):
        raise ValueError('give both batch counts or none')
    indices = as_indices('indices', indices, features)
    if features_batch_cnt is None:
        _check(features, indices, 3)
        return _gather(features, indices.flatten(1)).unflatten(
            2, indices.shape[1:])
    if features.dim() != 2 or not features.is_floating_point():
        raise ValueError('features must be floating (N, C), got '
                         f'{features.dtype} {tuple(features.shape)}')
    if indices.dim() != 2:
        raise ValueError('indices must have shape (M, S), got '
                         f'{tuple(indices.shape)}')
    check_counts(features_batch_cnt, indices_batch_cnt, features)
    return _stacked(features, features_batch_cnt, indices, indices_batch_cnt)
