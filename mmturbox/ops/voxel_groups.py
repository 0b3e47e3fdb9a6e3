"""Which points share a voxel: distinct voxels, inverse ids, counts, order.

Nothing is capped. Voxels come in lexicographic order of their coordinates
(batch index first where there is one), the points of a voxel in input order.
The result serves any number of reductions: see
:func:`mmturbox.ops.voxel_reduce`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ._library import define
from .voxelize import check_batch, point_cells


class VoxelGroups(NamedTuple):
    """M voxels and the N points in them.

    Attributes:
        coors: (M, D), coordinates of the voxels.
        mapping: (N,) int32, voxel of each point; -1 for one left out.
        count: (M,) int32, points of each voxel.
        order: (N,) int64, points sorted by voxel (a voxel's in input order),
            those left out at the end.
    """
    coors: Tensor
    mapping: Tensor
    count: Tensor
    order: Tensor


def _row_order(coors: Tensor) -> Tensor:
    """Stable lexicographic order of rows, for any range of values."""
    order = torch.arange(len(coors), device=coors.device)
    for column in reversed(coors.unbind(1)):
        order = order[column[order].argsort(stable=True)]
    return order


def voxel_groups_reference(
        coors: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    valid = (coors >= 0).all(dim=1)
    point = valid.nonzero().squeeze(1)
    point = point[_row_order(coors[point])]
    rows = coors[point]
    is_new = torch.ones(len(rows), dtype=torch.bool, device=coors.device)
    is_new[1:] = (rows[1:] != rows[:-1]).any(dim=1)
    out_coors = rows[is_new]
    group = is_new.cumsum(0) - 1
    mapping = torch.full((len(coors), ), -1, device=coors.device)
    mapping[point] = group
    count = torch.bincount(group, minlength=len(out_coors))
    order = torch.cat((point, (~valid).nonzero().squeeze(1)))
    return out_coors, mapping.int(), count.int(), order


def point_groups_reference(
        points: Tensor, sizes: list[int], voxel_size: list[float],
        point_cloud_range: list[float],
        grid: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    cells, inside = point_cells(points, voxel_size, point_cloud_range, grid)
    zyx = torch.where(inside[:, None], cells, -1.0).int().flip(1)
    sample = torch.repeat_interleave(
        torch.arange(len(sizes), device=points.device, dtype=torch.int32),
        torch.tensor(sizes, device=points.device))
    return voxel_groups_reference(torch.cat((sample[:, None], zyx), dim=1))


def _fake(like: Tensor, number: int, dtype: torch.dtype,
          width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    voxels = torch.library.get_ctx().new_dynamic_size()
    return (like.new_empty((voxels, width), dtype=dtype),
            like.new_empty(number, dtype=torch.int32),
            like.new_empty(voxels, dtype=torch.int32),
            like.new_empty(number, dtype=torch.int64))


_of_rows = define(
    'voxel_groups(Tensor coors) -> (Tensor, Tensor, Tensor, Tensor)',
    voxel_groups_reference,
    fake=lambda coors: _fake(coors, len(coors), coors.dtype, coors.shape[1]))
_of_points = define(
    'point_groups(Tensor points, int[] sizes, float[] voxel_size, '
    'float[] point_cloud_range, int[] grid) '
    '-> (Tensor, Tensor, Tensor, Tensor)',
    point_groups_reference,
    fake=lambda points, *rest: _fake(points, len(points), torch.int32, 4))


def voxel_groups(coors: Tensor) -> VoxelGroups:
    """Group points by the coordinates of their voxels.

    Args:
        coors: (N, D) int32 or int64; a row with a negative entry is left
            out.

    Returns:
        The voxels in lexicographic order; coordinates in the given dtype.

    Raises:
        ValueError: on a wrong shape or dtype.
        RuntimeError: if the coordinates span more than 2^63 cells.

    Note:
        Deterministic; the number of voxels is read once. No gradient.
    """
    if coors.dim() != 2:
        raise ValueError(
            f'coors must have shape (N, D), got {tuple(coors.shape)}')
    if coors.dtype not in (torch.int32, torch.int64):
        raise ValueError(f'coors must be int32 or int64, got {coors.dtype}')
    return VoxelGroups(*_of_rows(coors))


def point_groups(points: Sequence[Tensor], voxel_size: Sequence[float],
                 point_cloud_range: Sequence[float]) -> VoxelGroups:
    """Group the points of a batch by voxel.

    Args:
        points: B tensors (N_b, C >= 3) of one dtype and device; x, y, z in
            metres first. Points out of range are left out.
        voxel_size, point_cloud_range: as
            :func:`mmturbox.ops.hard_voxelize_batch`.

    Returns:
        The voxels in order of batch index, z, y, x, which are their
        coordinates (M, 4) int32; points are counted through the batch.

    Raises:
        ValueError: on a wrong shape, dtype, device or range.

    Note:
        Deterministic; the number of voxels is read once for the whole batch.
        No gradient.
    """
    grid, joined, sizes = check_batch(points, voxel_size, point_cloud_range)
    return VoxelGroups(*_of_points(joined, sizes, list(voxel_size),
                                   list(point_cloud_range), grid))
