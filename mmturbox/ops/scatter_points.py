"""Reduce the features of all points that share a voxel.

Definition: mmcv's ``dynamic_point_to_voxel``: voxels in lexicographic order
of their coordinates, points with a negative coordinate left out, the
gradient of a maximum given to the first point that attains it. Sums are
taken in point order (mmcv's CUDA kernel adds atomically). A NaN feature
shows in its voxel's maximum, as in ``torch.amax``; mmcv drops it.
"""

import torch
from torch import Tensor

from ._library import define

_MODES = {'sum': 0, 'mean': 1, 'max': 2}


def _row_order(coors: Tensor) -> Tensor:
    """Stable lexicographic order of rows, for any range of values."""
    order = torch.arange(len(coors), device=coors.device)
    for column in reversed(coors.unbind(1)):
        order = order[column[order].argsort(stable=True)]
    return order


def dynamic_scatter_reference(
        feats: Tensor, coors: Tensor,
        mode: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    point = (coors >= 0).all(dim=1).nonzero().squeeze(1)
    point = point[_row_order(coors[point])]
    rows = coors[point]
    is_new = torch.ones(len(rows), dtype=torch.bool, device=coors.device)
    is_new[1:] = (rows[1:] != rows[:-1]).any(dim=1)
    out_coors = rows[is_new]
    mapping = torch.full((len(coors), ), -1, device=coors.device)
    mapping[point] = is_new.cumsum(0) - 1

    valid = (mapping >= 0).nonzero().squeeze(1)
    group = mapping[valid]
    count = torch.bincount(group, minlength=len(out_coors))
    half = feats.dtype in (torch.float16, torch.bfloat16)
    values = (feats.float() if half else feats)[valid]
    out = values.new_zeros(len(out_coors), feats.shape[1])
    if mode == _MODES['max']:
        out.scatter_reduce_(
            0, group[:, None].expand_as(values), values, 'amax',
            include_self=False)
    else:
        out.index_add_(0, group, values)
        if mode == _MODES['mean']:
            out = out / count[:, None]
    return out.to(feats.dtype), out_coors, mapping.int(), count.int()


def dynamic_scatter_backward_reference(grad: Tensor, feats: Tensor,
                                       reduced: Tensor, mapping: Tensor,
                                       count: Tensor, mode: int) -> Tensor:
    out = torch.zeros_like(feats)
    valid = (mapping >= 0).nonzero().squeeze(1)
    group = mapping[valid].long()
    if mode != _MODES['max']:
        divisor = count[group, None] if mode == _MODES['mean'] else 1
        out[valid] = (grad[group] / divisor).to(feats.dtype)
        return out
    values, best = feats[valid], reduced[group]
    equal = (values == best) | (values.isnan() & best.isnan())
    none = len(feats)
    source = torch.where(equal, valid[:, None], none)
    first = torch.full(reduced.shape, none, device=feats.device)
    first.scatter_reduce_(0, group[:, None].expand_as(source), source, 'amin')
    padded = torch.cat((out, out.new_zeros(1, feats.shape[1])))
    return padded.scatter_(0, first, grad.to(feats.dtype))[:none].clone()


def _fake(feats, coors, mode):
    num_voxels = torch.library.get_ctx().new_dynamic_size()
    return (feats.new_empty(num_voxels, feats.shape[1]),
            coors.new_empty(num_voxels, coors.shape[1]),
            coors.new_empty(len(coors), dtype=torch.int32),
            coors.new_empty(num_voxels, dtype=torch.int32))


def _setup_context(ctx, inputs, output):
    feats, _, ctx.mode = inputs
    reduced, _, mapping, count = output
    ctx.save_for_backward(feats, reduced, mapping, count)


def _backward(ctx, grad, *unused):
    feats, reduced, mapping, count = ctx.saved_tensors
    grad_feats = _backward_op(grad, feats, reduced, mapping, count,
                                   ctx.mode)
    return grad_feats, None, None


_backward_op = define(
    'dynamic_scatter_backward(Tensor grad, Tensor feats, Tensor reduced, '
    'Tensor mapping, Tensor count, int mode) -> Tensor',
    dynamic_scatter_backward_reference,
    fake=lambda grad, feats, *rest: feats.new_empty(feats.shape))
_scatter = define(
    'dynamic_scatter(Tensor feats, Tensor coors, int mode) '
    '-> (Tensor, Tensor, Tensor, Tensor)',
    dynamic_scatter_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)


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
        ValueError: on a wrong shape, dtype or reduction.
        RuntimeError: if the coordinates span more than 2^63 cells.

    Note:
        Bitwise deterministic, forward and backward. float16 and bfloat16
        are summed in float32.
    """
    if reduce not in _MODES:
        raise ValueError(f'reduce must be one of {sorted(_MODES)}, got '
                         f'{reduce!r}')
    if feats.dim() != 2 or coors.dim() != 2 or len(feats) != len(coors):
        raise ValueError('feats and coors must have shapes (N, C) and (N, D),'
                         f' got {tuple(feats.shape)} and '
                         f'{tuple(coors.shape)}')
    if not feats.is_floating_point() or coors.dtype not in (torch.int32,
                                                            torch.int64):
        raise ValueError('feats must be floating and coors int32 or int64, '
                         f'got {feats.dtype} and {coors.dtype}')
    return _scatter(feats, coors, _MODES[reduce])


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
        (N, C) in the dtype of ``feats``.
    """
    return _backward_op(grad, feats, reduced, mapping, count, _MODES[reduce])
