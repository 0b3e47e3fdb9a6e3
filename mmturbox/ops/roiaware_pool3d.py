"""RoI-aware pooling (Part-A2, arXiv:1907.03670).

Definition: mmcv's ``RoIAwarePool3d``. In place of its dense table of point
indices (boxes x cells x points per cell) the points of the cells stand one
after the other: cell v has ``members[starts[v]:starts[v + 1]]``.
"""

import torch
from torch import Tensor
from torch.nn.modules.utils import _triple

from ._library import define
from ._points import check_alike, compute
from .points_in_boxes import points_in_boxes_all_reference

_MODES = {'max': True, 'avg': False}


def _bin(along: Tensor, size: Tensor, bins: int) -> Tensor:
    at = along / (size / bins)
    return torch.where(at > 0, at, 0).clamp(max=bins - 1).long()


def roiaware_assign_reference(rois: Tensor, points: Tensor, out_x: int,
                              out_y: int,
                              out_z: int) -> tuple[Tensor, Tensor]:
    rois, points = compute(rois), compute(points)
    inside = points_in_boxes_all_reference(points[None], rois[None])[0]
    box, member = inside.t().nonzero(as_tuple=True)
    roi, delta = rois[box], points[member] - rois[box, :3]
    cos, sin = torch.cos(-roi[:, 6]), torch.sin(-roi[:, 6])
    local_x = delta[:, 0] * cos - delta[:, 1] * sin
    local_y = delta[:, 0] * sin + delta[:, 1] * cos
    x = _bin(local_x + roi[:, 3] / 2, roi[:, 3], out_x)
    y = _bin(local_y + roi[:, 4] / 2, roi[:, 4], out_y)
    z = _bin(delta[:, 2], roi[:, 5], out_z)
    cells, order = (((box * out_x + x) * out_y + y) * out_z + z).sort(
        stable=True)
    number = len(rois) * out_x * out_y * out_z
    starts = torch.searchsorted(
        cells, torch.arange(number + 1, device=cells.device))
    return starts, member[order].int()


def counted_members(
        starts: Tensor, members: Tensor,
        max_members: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The members that count, those with a rank below ``max_members``.

    Returns:
        Of each such member its cell, its rank in the cell and its point;
        and how many each cell has.
    """
    sizes = starts.diff()
    cell = torch.repeat_interleave(sizes)
    rank = torch.arange(len(members), device=cell.device) - starts[cell]
    counts = rank < max_members
    return (cell[counts], rank[counts], members[counts].long(),
            sizes.clamp(max=max_members))


def roiaware_pool_reference(features: Tensor, starts: Tensor,
                            members: Tensor, max_members: int,
                            take_max: bool) -> tuple[Tensor, Tensor]:
    rows = compute(features)
    shape = (len(starts) - 1, rows.shape[1])
    cell, _, member, sizes = counted_members(starts, members, max_members)
    taken = rows[member]
    if not take_max:
        sums = rows.new_zeros(shape).index_add_(0, cell, taken)
        pooled = sums / sizes.clamp(min=1)[:, None]
        return pooled.to(features.dtype), member.new_empty(
            (0, shape[1]), dtype=torch.int32)
    taken = torch.where(taken > -torch.inf, taken, -torch.inf)
    where = cell[:, None].expand_as(taken)
    pooled = rows.new_full(shape, -torch.inf).scatter_reduce_(
        0, where, taken, 'amax')
    rank = torch.arange(len(member), device=member.device)[:, None]
    is_best = (taken == pooled[cell]) & (taken > -torch.inf)
    best = torch.full(shape, len(member), device=member.device)
    best.scatter_reduce_(0, where,
                         torch.where(is_best, rank, len(member)), 'amin')
    argmax = torch.cat((member, member.new_tensor([-1])))[best]
    pooled = torch.where(argmax >= 0, pooled, 0)
    return pooled.to(features.dtype), argmax.int()


def roiaware_pool_backward_reference(grad: Tensor, starts: Tensor,
                                     members: Tensor, argmax: Tensor,
                                     num_points: int, max_members: int,
                                     take_max: bool) -> Tensor:
    rows = compute(grad)
    out = rows.new_zeros((num_points + 1, rows.shape[1]))
    if take_max:
        where = torch.where(argmax >= 0, argmax, num_points).long()
        out.scatter_add_(0, where, rows)
    else:
        cell, _, member, sizes = counted_members(starts, members, max_members)
        share = rows / sizes.clamp(min=1)[:, None]
        out.index_add_(0, member, share[cell])
    return out[:-1].to(grad.dtype, copy=True)


def _fake_assign(rois, points, out_x, out_y, out_z):
    number = torch.library.get_ctx().new_dynamic_size()
    cells = len(rois) * out_x * out_y * out_z
    return (points.new_empty(cells + 1, dtype=torch.int64),
            points.new_empty(number, dtype=torch.int32))


def _fake_pool(features, starts, members, max_members, take_max):
    shape = (len(starts) - 1, features.shape[1])
    return (features.new_empty(shape),
            features.new_empty(shape if take_max else (0, shape[1]),
                               dtype=torch.int32))


def _setup_context(ctx, inputs, output):
    features, starts, members, *ctx.options = inputs
    ctx.num_points = len(features)
    ctx.save_for_backward(starts, members, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad, unused):
    grad_features = roiaware_pool_backward(grad, *ctx.saved_tensors,
                                           ctx.num_points, *ctx.options)
    return grad_features, None, None, None, None


roiaware_assign = define(
    'roiaware_assign(Tensor rois, Tensor points, int out_x, int out_y, '
    'int out_z) -> (Tensor, Tensor)',
    roiaware_assign_reference,
    fake=_fake_assign)
roiaware_pool_backward = define(
    'roiaware_pool_backward(Tensor grad, Tensor starts, Tensor members, '
    'Tensor argmax, int num_points, int max_members, bool take_max) -> '
    'Tensor',
    roiaware_pool_backward_reference,
    fake=lambda grad, starts, members, argmax, num_points, *rest: grad.
    new_empty((num_points, grad.shape[1])))
roiaware_pool = define(
    'roiaware_pool(Tensor features, Tensor starts, Tensor members, '
    'int max_members, bool take_max) -> (Tensor, Tensor)',
    roiaware_pool_reference,
    fake=_fake_pool,
    setup_context=_setup_context,
    backward=_backward)


def roiaware_pool3d(rois: Tensor,
                    pts: Tensor,
                    pts_feature: Tensor,
                    out_size: int | tuple[int, int, int],
                    max_pts_per_voxel: int = 128,
                    mode: str = 'max') -> Tensor:
    """Pool point features over the cells of boxes.

    Args:
        rois: (N, 7) floating; bottom centre x, y, z, sizes dx, dy, dz in
            metres, yaw about z in radians.
        pts: (P, 3) of the same dtype; x, y, z in metres. A point with a NaN
            is in no box.
        pts_feature: (P, C) of the same dtype.
        out_size: cells along x, y and z of a box.
        max_pts_per_voxel: the first ``max_pts_per_voxel - 1`` points of a
            cell count, as in mmcv.
        mode: 'max' (of the values that are numbers) or 'avg'.

    Returns:
        (N, out_x, out_y, out_z, C) in the dtype of ``pts_feature``; zero for
        cells without points.

    Raises:
        ValueError: on a wrong shape, dtype, device or mode.

    Note:
        The result is deterministic; the gradient of ``pts_feature`` is on
        the CPU, and summed in an order that varies on CUDA. On CUDA the
        number of points in cells is read on the host once.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be 'max' or 'avg', got {mode!r}")
    for name, tensor, width in (('rois', rois, 7), ('pts', pts, 3),
                                ('pts_feature', pts_feature, None)):
        if tensor.dim() != 2 or not tensor.is_floating_point() or (
                width and tensor.shape[1] != width):
            raise ValueError(f'{name} must be floating (N, {width or "C"}), '
                             f'got {tensor.dtype} {tuple(tensor.shape)}')
    if len(pts) != len(pts_feature):
        raise ValueError('pts and pts_feature must have one length, got '
                         f'{len(pts)} and {len(pts_feature)}')
    check_alike(rois=rois, pts=pts, pts_feature=pts_feature)
    out_size = _triple(out_size)
    if min(out_size) < 1 or max_pts_per_voxel < 1:
        raise ValueError('out_size and max_pts_per_voxel must be positive, '
                         f'got {out_size} and {max_pts_per_voxel}')
    starts, members = roiaware_assign(rois.detach(), pts.detach(), *out_size)
    pooled = roiaware_pool(pts_feature, starts, members,
                           max_pts_per_voxel - 1, _MODES[mode])[0]
    return pooled.view(len(rois), *out_size, pts_feature.shape[1])
