"""Reduce the features of all points that share a voxel.

Definition: mmcv's ``dynamic_point_to_voxel``: voxels in lexicographic order
of their coordinates, points with a negative coordinate left out, the
gradient of a maximum given to the first point that attains it. Sums are
taken in point order (mmcv's CUDA kernel adds atomically). A NaN feature
shows in its voxel's maximum, as in ``torch.amax``; mmcv drops it.

Finding the voxels (:func:`mmturbox.ops.voxel_groups`, which reads their
number) and reducing (:func:`voxel_reduce`, which reads nothing) are operators
of their own, so that several reductions share one search.
"""

import torch
from torch import Tensor

from ._library import define
from .voxel_groups import VoxelGroups, voxel_groups

_MODES = {'sum': 0, 'mean': 1, 'max': 2}


def voxel_reduce_reference(feats: Tensor, mapping: Tensor, count: Tensor,
                           order: Tensor, mode: int) -> Tensor:
    valid = (mapping >= 0).nonzero().squeeze(1)
    group = mapping[valid].long()
    half = feats.dtype in (torch.float16, torch.bfloat16)
    values = (feats.float() if half else feats)[valid]
    out = values.new_zeros(len(count), feats.shape[1])
    if mode == _MODES['max']:
        out.scatter_reduce_(
            0, group[:, None].expand_as(values), values, 'amax',
            include_self=False)
    else:
        out.index_add_(0, group, values)
        if mode == _MODES['mean']:
            out = out / count[:, None]
    return out.to(feats.dtype)


def voxel_reduce_backward_reference(grad: Tensor, feats: Tensor,
                                    reduced: Tensor, mapping: Tensor,
                                    count: Tensor, order: Tensor,
                                    mode: int) -> Tensor:
    number = len(mapping)
    out = grad.new_zeros(number, grad.shape[1])
    valid = (mapping >= 0).nonzero().squeeze(1)
    group = mapping[valid].long()
    if mode != _MODES['max']:
        divisor = count[group, None] if mode == _MODES['mean'] else 1
        out[valid] = (grad[group] / divisor).to(out.dtype)
        return out
    values, best = feats[valid], reduced[group]
    equal = (values == best) | (values.isnan() & best.isnan())
    source = torch.where(equal, valid[:, None], number)
    first = torch.full(reduced.shape, number, device=grad.device)
    first.scatter_reduce_(0, group[:, None].expand_as(source), source, 'amin')
    padded = torch.cat((out, out.new_zeros(1, grad.shape[1])))
    return padded.scatter_(0, first, grad)[:number].clone()


def _setup_context(ctx, inputs, output):
    feats, mapping, count, order, ctx.mode = inputs
    if ctx.mode == _MODES['max']:
        ctx.save_for_backward(feats, output, mapping, count, order)
    else:
        ctx.save_for_backward(None, None, mapping, count, order)


def _backward(ctx, grad):
    feats, reduced, mapping, count, order = ctx.saved_tensors
    if feats is None:  # of sums, only the gradient matters
        feats = reduced = grad
    return _backward_op(grad, feats, reduced, mapping, count, order,
                        ctx.mode), None, None, None, None


_backward_op = define(
    'voxel_reduce_backward(Tensor grad, Tensor feats, Tensor reduced, '
    'Tensor mapping, Tensor count, Tensor order, int mode) -> Tensor',
    voxel_reduce_backward_reference,
    fake=lambda grad, feats, reduced, mapping, *rest: grad.new_empty(
        (mapping.shape[0], grad.shape[1])))
_reduce = define(
    'voxel_reduce(Tensor feats, Tensor mapping, Tensor count, Tensor order, '
    'int mode) -> Tensor',
    voxel_reduce_reference,
    fake=lambda feats, mapping, count, order, mode: feats.new_empty(
        (count.shape[0], feats.shape[1])),
    setup_context=_setup_context,
    backward=_backward)


def mean_backward(grad: Tensor, mapping: Tensor, count: Tensor) -> Tensor:
    """Each point's share (N, C) of its voxel mean's gradient (M, C)."""
    return _backward_op(grad, grad, grad, mapping, count, mapping,
                        _MODES['mean'])


def _check(feats: Tensor, number: int, reduce: str) -> None:
    if reduce not in _MODES:
        raise ValueError(f'reduce must be one of {sorted(_MODES)}, got '
                         f'{reduce!r}')
    if feats.dim() != 2 or len(feats) != number:
        raise ValueError(f'feats must have shape ({number}, C), a row a '
                         f'point, got {tuple(feats.shape)}')
    if not feats.is_floating_point():
        raise ValueError(f'feats must be floating, got {feats.dtype}')


def voxel_reduce(feats: Tensor, groups: VoxelGroups,
                 reduce: str = 'max') -> Tensor:
    """Reduce point features over voxels that are already known.

    Args:
        feats: (N, C) floating, on the groups' device.
        groups: from :func:`mmturbox.ops.voxel_groups` or
            :func:`mmturbox.ops.point_groups`.
        reduce: 'max', 'mean' or 'sum'.

    Returns:
        (M, C) in the features' dtype.

    Raises:
        ValueError: on a wrong shape, dtype, device or reduction.

    Note:
        Bitwise deterministic, forward and backward, and no value is read
        back to the host. float16 and bfloat16 are summed in float32.
    """
    _check(feats, len(groups.mapping), reduce)
    if feats.device != groups.mapping.device:
        raise ValueError('feats and groups must share their device, got '
                         f'{feats.device} and {groups.mapping.device}')
    return _reduce(feats, *groups[1:], _MODES[reduce])


def dynamic_scatter(
        feats: Tensor,
        coors: Tensor,
        reduce: str = 'max') -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Reduce point features over voxels.

    Args:
        feats: (N, C) floating.
        coors: (N, D) int32 or int64, voxel of each point; a row with a
            negative entry is left out.
        reduce: 'max', 'mean' or 'sum'.

    Returns:
        feats (M, C) of the voxels in lexicographic order of coordinates;
        coors (M, D) in the given dtype; point-to-voxel map (N,) int32, -1
        for points left out; points per voxel (M,) int32.

    Raises:
        ValueError: on a wrong shape, dtype, device or reduction.
        RuntimeError: if the coordinates span more than 2^63 cells.

    Note:
        Bitwise deterministic, forward and backward. float16 and bfloat16
        are summed in float32.
    """
    _check(feats, len(coors), reduce)
    groups = voxel_groups(coors)
    return voxel_reduce(feats, groups, reduce), *groups[:3]


def dynamic_scatter_backward(grad: Tensor, feats: Tensor, reduced: Tensor,
                             mapping: Tensor, count: Tensor,
                             reduce: str) -> Tensor:
    """The gradient of :func:`dynamic_scatter` by ``feats``.

    Args:
        grad: (M, C), gradient by the voxels' features.
        feats, reduced, mapping, count: input and outputs of
            :func:`dynamic_scatter` (without the coordinates).
        reduce: as there.

    Returns:
        (N, C) in the dtype of ``grad``.
    """
    order = mapping
    if reduce == 'max':
        order = torch.where(mapping < 0, len(count), mapping).argsort(
            stable=True)
    return _backward_op(grad, feats, reduced, mapping, count, order,
                        _MODES[reduce])
