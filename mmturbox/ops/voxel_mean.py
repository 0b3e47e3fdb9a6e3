"""Mean of the points of each voxel, without a tensor of grouped points.

Definition: :func:`mmturbox.ops.hard_voxelize_batch` followed by mmdet3d's
``HardSimpleVFE`` (as BEVFusion's ``voxelize_reduce``): the same voxels, the
same points kept. Points are summed one after the other in input order;
PyTorch, which sums in an order of its own, gives the same bits up to four
points, and other last bits beyond.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._library import define
from .scatter_points import mean_backward
from .voxelize import check_batch, check_capacity, hard_assignment


def voxel_mean_reference(
        points: Tensor, sizes: list[int], voxel_size: list[float],
        point_cloud_range: list[float], grid: list[int], max_num_points: int,
        max_voxels: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    voxel, slot, index, coors, count = hard_assignment(
        points, sizes, voxel_size, point_cloud_range, grid, max_num_points,
        max_voxels)
    mapping = torch.full((len(points), ), -1, device=points.device)
    mapping[index] = voxel
    half = points.dtype in (torch.float16, torch.bfloat16)
    values = points.float() if half else points
    total = values.new_zeros(len(count), points.shape[1])
    # One point of each voxel at a time fixes the order of the sums.
    for place in range(int(count.max()) if len(count) else 0):
        here = slot == place
        total[voxel[here]] += values[index[here]]
    mean = total / count[:, None]
    return mean.to(points.dtype), coors, count, mapping.int()


def _fake(points, sizes, voxel_size, point_cloud_range, grid, max_num_points,
          max_voxels):
    voxels = torch.library.get_ctx().new_dynamic_size()
    return (points.new_empty(voxels, points.shape[1]),
            points.new_empty((voxels, 4), dtype=torch.int32),
            points.new_empty(voxels, dtype=torch.int32),
            points.new_empty(len(points), dtype=torch.int32))


def _setup_context(ctx, inputs, output):
    _, _, count, mapping = output
    ctx.save_for_backward(mapping, count)


def _backward(ctx, grad, *unused):
    return mean_backward(grad, *ctx.saved_tensors), *[None] * 6


_mean = define(
    'voxel_mean(Tensor points, int[] sizes, float[] voxel_size, '
    'float[] point_cloud_range, int[] grid, int max_num_points, '
    'int max_voxels) -> (Tensor, Tensor, Tensor, Tensor)',
    voxel_mean_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)


def voxel_mean(points: Sequence[Tensor], voxel_size: Sequence[float],
               point_cloud_range: Sequence[float], max_num_points: int,
               max_voxels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Voxelize a batch and average the points kept of each voxel.

    Args:
        points, voxel_size, point_cloud_range, max_num_points, max_voxels: as
            :func:`mmturbox.ops.hard_voxelize_batch`.

    Returns:
        means (M, C) in the points' dtype; coors (M, 4) int32 of batch index,
        z, y, x; num_points (M,) int32, points in each mean.

    Raises:
        ValueError: on a wrong shape, dtype, device, range or capacity.

    Note:
        Bitwise deterministic; one size is read for the whole batch. The
        gradient reaches the points kept; which voxel a point falls in has
        none. float16 and bfloat16 are summed in float32.
    """
    check_capacity(max_num_points, max_voxels)
    grid, joined, sizes = check_batch(points, voxel_size, point_cloud_range)
    means, coors, num_points, _ = _mean(joined, sizes, list(voxel_size),
                                        list(point_cloud_range), grid,
                                        max_num_points, max_voxels)
    return means, coors, num_points
