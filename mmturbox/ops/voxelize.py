"""Points to voxels: hard (capped, grouped) and dynamic (coordinates only).

Definition: mmcv's ``hard_voxelize`` in its deterministic mode and
``dynamic_voxelize``. Two things are stricter, each stated by a test: the
grid size is rounded as the layers of mmcv and mmdet3d report it (half to
even, in float32), so that no coordinate reaches it; and a point with a NaN
or infinite coordinate is out of range.

``coors`` hold z, y, x as in mmcv, with the sample's index in front for a
batch. Points are in the lidar frame, in metres.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ._library import define


def grid_size(voxel_size: Sequence[float],
              point_cloud_range: Sequence[float]) -> list[int]:
    """Number of voxels along x, y, z, as mmcv's and mmdet3d's layers say."""
    bounds = np.asarray(point_cloud_range, dtype=np.float32)
    size = np.asarray(voxel_size, dtype=np.float32)
    return np.rint((bounds[3:] - bounds[:3]) / size).astype(int).tolist()


def point_cells(points: Tensor, voxel_size: list[float], bounds: list[float],
                grid: list[int]) -> tuple[Tensor, Tensor]:
    """Cell x, y, z of each point (N, 3) float, and whether it is inside."""
    xyz = points[:, :3]
    if xyz.dtype in (torch.float16, torch.bfloat16):
        xyz = xyz.float()

    def constant(values):
        return torch.tensor(
            values, dtype=torch.float32, device=xyz.device).to(xyz.dtype)

    cells = torch.floor((xyz - constant(bounds[:3])) / constant(voxel_size))
    inside = ((cells >= 0) & (cells < constant(grid))).all(dim=1)
    return cells, inside


def dynamic_voxelize_reference(points: Tensor, voxel_size: list[float],
                               point_cloud_range: list[float],
                               grid: list[int]) -> Tensor:
    cells, inside = point_cells(points, voxel_size, point_cloud_range, grid)
    return torch.where(inside[:, None], cells, -1.0).int().flip(1)


def hard_assignment(
    points: Tensor, sizes: list[int], voxel_size: list[float],
    point_cloud_range: list[float], grid: list[int], max_num_points: int,
    max_voxels: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Which points make up which voxels, in plain PyTorch.

    Returns:
        of the K points kept: voxel, place in it, index, each (K,) int64; of
        the voxels: coors (M, 4) int32, num_points (M,) int32.
    """
    cells, inside = point_cells(points, voxel_size, point_cloud_range, grid)
    index = inside.nonzero().squeeze(1)
    x, y, z = cells[index].long().unbind(1)
    sample = torch.repeat_interleave(
        torch.arange(len(sizes), device=points.device),
        torch.tensor(sizes, device=points.device))[index]
    key = ((sample * grid[2] + z) * grid[1] + y) * grid[0] + x

    # Groups of equal keys, points of a group in input order.
    key, order = key.sort(stable=True)
    index = index[order]
    _, group, count = torch.unique_consecutive(
        key, return_inverse=True, return_counts=True)
    start = count.cumsum(0) - count
    slot = torch.arange(len(key), device=points.device) - start[group]

    # Voxels by first occurrence; those of a sample are consecutive.
    by_first = index[start].argsort()
    sample, z, y, x = (column[order][start] for column in (sample, z, y, x))
    per_sample = torch.bincount(sample, minlength=len(sizes))
    before = per_sample.cumsum(0) - per_sample
    rank = torch.arange(len(by_first), device=points.device)
    kept = by_first[rank - before[sample[by_first]] < max_voxels]
    voxel = torch.full_like(count, -1)
    voxel[kept] = torch.arange(len(kept), device=points.device)

    target = voxel[group]
    keep = (target >= 0) & (slot < max_num_points)
    coors = torch.stack((sample, z, y, x), dim=1)[kept]
    return (target[keep], slot[keep], index[keep], coors.int(),
            count[kept].clamp(max=max_num_points).int())


def hard_voxelize_reference(
        points: Tensor, sizes: list[int], voxel_size: list[float],
        point_cloud_range: list[float], grid: list[int], max_num_points: int,
        max_voxels: int) -> tuple[Tensor, Tensor, Tensor]:
    voxel, slot, index, coors, count = hard_assignment(
        points, sizes, voxel_size, point_cloud_range, grid, max_num_points,
        max_voxels)
    voxels = points.new_zeros(len(count), max_num_points, points.shape[1])
    voxels[voxel, slot] = points[index]
    return voxels, coors, count


def _hard_fake(points, sizes, voxel_size, point_cloud_range, grid,
               max_num_points, max_voxels):
    num_voxels = torch.library.get_ctx().new_dynamic_size()
    return (points.new_empty(num_voxels, max_num_points, points.shape[1]),
            points.new_empty((num_voxels, 4), dtype=torch.int32),
            points.new_empty(num_voxels, dtype=torch.int32))


_hard = define(
    'hard_voxelize(Tensor points, int[] sizes, float[] voxel_size, '
    'float[] point_cloud_range, int[] grid, int max_num_points, '
    'int max_voxels) -> (Tensor, Tensor, Tensor)',
    hard_voxelize_reference,
    fake=_hard_fake)
_dynamic = define(
    'dynamic_voxelize(Tensor points, float[] voxel_size, '
    'float[] point_cloud_range, int[] grid) -> Tensor',
    dynamic_voxelize_reference,
    fake=lambda points, voxel_size, point_cloud_range, grid: points.new_empty(
        (points.shape[0], 3), dtype=torch.int32))


def _check(points: Tensor, voxel_size: Sequence[float],
           point_cloud_range: Sequence[float]) -> list[int]:
    """The grid (x, y, z) of right arguments."""
    if points.dim() != 2 or points.shape[1] < 3:
        raise ValueError('points must have shape (N, C >= 3), got '
                         f'{tuple(points.shape)}')
    if not points.is_floating_point():
        raise ValueError(f'points must be floating, got {points.dtype}')
    if len(voxel_size) != 3 or min(voxel_size) <= 0:
        raise ValueError('voxel_size must be three positive lengths, got '
                         f'{list(voxel_size)}')
    if len(point_cloud_range) != 6:
        raise ValueError('point_cloud_range must be [x0, y0, z0, x1, y1, z1],'
                         f' got {list(point_cloud_range)}')
    grid = grid_size(voxel_size, point_cloud_range)
    if min(grid) < 1:
        raise ValueError(
            f'point_cloud_range {list(point_cloud_range)} holds no voxel of '
            f'size {list(voxel_size)}')
    return grid


def check_batch(
    points: Sequence[Tensor], voxel_size: Sequence[float],
    point_cloud_range: Sequence[float]
) -> tuple[list[int], Tensor, list[int]]:
    """Grid, joined points and sizes of right arguments; else ValueError."""
    if not points:
        raise ValueError('points must hold at least one sample')
    first = points[0]
    for sample in points:
        grid = _check(sample, voxel_size, point_cloud_range)
        if (sample.shape[1], sample.dtype, sample.device) != (
                first.shape[1], first.dtype, first.device):
            raise ValueError(
                'samples must share columns, dtype and device, got '
                f'{first.shape[1]} {first.dtype} {first.device} and '
                f'{sample.shape[1]} {sample.dtype} {sample.device}')
    if max(grid) >= 2**31 or math.prod(grid) * len(points) >= 2**63:
        raise ValueError(f'{len(points)} grids of {grid} voxels are too many '
                         'to number')
    joined = first if len(points) == 1 else torch.cat(list(points))
    return grid, joined, [len(sample) for sample in points]


def check_capacity(max_num_points: int, max_voxels: int) -> None:
    """ValueError where a limit is not positive."""
    if max_num_points < 1 or max_voxels < 1:
        raise ValueError('max_num_points and max_voxels must be positive, '
                         f'got {max_num_points} and {max_voxels}; use '
                         'dynamic_voxelize for voxels without limit')


def hard_voxelize_batch(
        points: Sequence[Tensor], voxel_size: Sequence[float],
        point_cloud_range: Sequence[float], max_num_points: int,
        max_voxels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Group the points of a batch into voxels.

    Equals :func:`hard_voxelize` on each sample, with the results put
    together; the size of the result is read once for the whole batch.

    Args:
        points: B tensors (N_b, C >= 3) of one dtype and device; x, y, z in
            metres first.
        voxel_size: x, y, z in metres.
        point_cloud_range: x0, y0, z0, x1, y1, z1 in metres.
        max_num_points: points kept in a voxel (P), the first in input order.
        max_voxels: voxels kept of each sample, the first by occurrence.

    Returns:
        voxels (M, P, C) in the points' dtype, zero where empty; coors
        (M, 4) int32 of batch index, z, y, x; num_points (M,) int32.

    Raises:
        ValueError: on a wrong shape, dtype, range or capacity.

    Note:
        Bitwise deterministic. No gradient.
    """
    check_capacity(max_num_points, max_voxels)
    grid, joined, sizes = check_batch(points, voxel_size, point_cloud_range)
    return _hard(joined, sizes, list(voxel_size), list(point_cloud_range),
                 grid, max_num_points, max_voxels)


def hard_voxelize(points: Tensor, voxel_size: Sequence[float],
                  point_cloud_range: Sequence[float], max_num_points: int,
                  max_voxels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Group the points of one sample into voxels.

    Args, errors and notes as :func:`hard_voxelize_batch`, with ``points``
    (N, C >= 3).

    Returns:
        voxels (M, P, C), coors (M, 3) int32 of z, y, x, num_points (M,)
        int32.
    """
    voxels, coors, num_points = hard_voxelize_batch(
        [points], voxel_size, point_cloud_range, max_num_points, max_voxels)
    return voxels, coors[:, 1:].contiguous(), num_points


def dynamic_voxelize(points: Tensor, voxel_size: Sequence[float],
                     point_cloud_range: Sequence[float]) -> Tensor:
    """The voxel of each point.

    Args:
        points: (N, C >= 3) floating; x, y, z in metres first.
        voxel_size, point_cloud_range: as :func:`hard_voxelize_batch`.

    Returns:
        (N, 3) int32 of z, y, x; -1, -1, -1 for a point out of range.

    Raises:
        ValueError: on a wrong shape, dtype or range.

    Note:
        Bitwise deterministic. No gradient.
    """
    grid = _check(points, voxel_size, point_cloud_range)
    return _dynamic(points, list(voxel_size), list(point_cloud_range), grid)
