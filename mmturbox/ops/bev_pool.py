"""Pooling of camera features into the bird's eye view.

Each pixel has features and a distribution over depth bins; the frustum point
of a pixel and a bin adds their product to the cell that it lies in
("lift, splat, shoot", arXiv:2008.05711). As in BEVPoolv2 (arXiv:2211.17111)
depth and features stay apart: the product over all points is never stored,
and the lists that the sums follow depend on geometry alone, so that they can
be kept as long as calibration and augmentation stay the same.

Definition: ``bev_pool`` of mmdet3d's BEVFusion (lower bounds inclusive by
truncation, see :func:`bev_cells`) with two differences of layout. Its maps
are (B, C, X, Y): pass points with x and y exchanged to get that order. Height
layers become channels, the lowest first, as there and in BEVDet.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ._library import define


class BEVPoolIntervals(NamedTuple):
    """Which frustum points each cell sums; made by
    :func:`bev_pool_intervals`."""

    cells: Tensor
    """(B, N, D, H, W) int32: cell of each point in its sample, or -1."""
    points: Tensor
    """(B * N * D * H * W,) int32: points by sample, cell and index, those
    outside of the grid at the end."""
    pixels: Tensor
    """The pixel (index in (B, N, H, W)) of each of ``points``."""
    starts: Tensor
    """(B * Z * Y * X + 1,) int32: where in ``points`` each cell begins."""
    grid: tuple[int, int, int]
    """X, Y, Z."""


def bev_cells_reference(points: Tensor, lower: list[float],
                        size: list[float], grid: list[int]) -> Tensor:
    points = _compute(points)
    x = (points - points.new_tensor(lower)) / points.new_tensor(size)
    limit = x.new_tensor(grid)
    inside = ((x > -1) & (x < limit)).all(-1)
    x, y, z = torch.where(inside[..., None], x, 0).long().unbind(-1)
    cell = (z * grid[1] + y) * grid[0] + x
    return torch.where(inside, cell, -1).int()


def _rows(cells: Tensor, num_cells: int) -> Tensor:
    """The output row of each point, the number of rows for outside."""
    batch = torch.arange(len(cells), device=cells.device)
    rows = batch.view(-1, 1, 1, 1, 1) * num_cells + cells
    inside = (cells >= 0) & (cells < num_cells)
    return torch.where(inside, rows, len(cells) * num_cells)


def bev_pool_intervals_reference(
        cells: Tensor, num_cells: int) -> tuple[Tensor, Tensor, Tensor]:
    rows, points = _rows(cells, num_cells).flatten().sort(stable=True)
    first = torch.arange(
        len(cells) * num_cells + 1, device=cells.device)
    starts = torch.searchsorted(rows, first)
    per_map = max(cells.shape[3] * cells.shape[4], 1)
    per_image = max(cells.shape[2] * per_map, 1)
    pixels = points // per_image * per_map + points % per_map
    return points.int(), pixels.int(), starts.int()


def bev_pool_reference(depth: Tensor, context: Tensor, cells: Tensor,
                       points: Tensor, pixels: Tensor,
                       starts: Tensor) -> Tensor:
    # A bag more, for the points outside; no size read is needed.
    sums = F.embedding_bag(
        pixels.long(),
        _compute(context).flatten(0, 3),
        starts.long(),
        mode='sum',
        per_sample_weights=_compute(depth).flatten()[points.long()])
    return sums[:-1].to(context.dtype)


def bev_pool_backward_reference(grad: Tensor, depth: Tensor, context: Tensor,
                                cells: Tensor) -> tuple[Tensor, Tensor]:
    rows = _rows(cells, len(grad) // max(len(cells), 1))
    grad = F.pad(_compute(grad), (0, 0, 0, 1))
    context_f, depth_f = _compute(context), _compute(depth)
    grad_depth = torch.empty_like(depth_f)
    grad_context = torch.zeros_like(context_f)
    for d in range(depth.shape[2]):
        picked = grad[rows[:, :, d]]
        grad_depth[:, :, d] = (picked * context_f).sum(-1)
        grad_context += picked * depth_f[:, :, d, ..., None]
    return (grad_depth.to(depth.dtype),
            grad_context.contiguous().to(context.dtype))


def _compute(tensor: Tensor) -> Tensor:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx, grad: Tensor):
    return *_pool_backward(grad, *ctx.saved_tensors), None, None, None, None


_cells = define(
    'bev_cells(Tensor points, float[] lower, float[] size, int[] grid) '
    '-> Tensor',
    bev_cells_reference,
    fake=lambda points, lower, size, grid: points.new_empty(
        points.shape[:-1], dtype=torch.int32))
_intervals = define(
    'bev_pool_intervals(Tensor cells, int num_cells) '
    '-> (Tensor points, Tensor pixels, Tensor starts)',
    bev_pool_intervals_reference,
    fake=lambda cells, num_cells:
    (cells.new_empty(cells.numel()), cells.new_empty(cells.numel()),
     cells.new_empty(len(cells) * num_cells + 1)))
_pool_backward = define(
    'bev_pool_backward(Tensor grad, Tensor depth, Tensor context, '
    'Tensor cells) -> (Tensor grad_depth, Tensor grad_context)',
    bev_pool_backward_reference,
    fake=lambda grad, depth, context, cells:
    (depth.new_empty(depth.shape), context.new_empty(context.shape)))
_pool = define(
    'bev_pool(Tensor depth, Tensor context, Tensor cells, Tensor points, '
    'Tensor pixels, Tensor starts) -> Tensor',
    bev_pool_reference,
    fake=lambda depth, context, cells, points, pixels, starts:
    context.new_empty(len(starts) - 1, context.shape[-1]),
    setup_context=_setup,
    backward=_backward)


def bev_cells(points: Tensor, lower: Sequence[float],
              voxel_size: Sequence[float], grid: Sequence[int]) -> Tensor:
    """The grid cell of each frustum point.

    Args:
        points: (..., 3) floating point; x, y, z in metres.
        lower: x, y, z of the grid's lower corner in metres.
        voxel_size: size of a cell in metres.
        grid: number of cells X, Y, Z.

    Returns:
        (...) int32: z * Y * X + y * X + x, or -1 outside. Coordinates are
        truncated towards zero as in mmdet3d, so a point less than a cell
        below the lower bound lies in cell 0. Not a number is outside.

    Raises:
        ValueError: on a wrong shape or dtype, or an empty grid.

    Note:
        Deterministic. No gradient.
    """
    _check_grid(grid)
    if points.shape[-1:] != (3,) or not points.is_floating_point():
        raise ValueError('points must be floating point of shape (..., 3), '
                         f'got {points.dtype} {tuple(points.shape)}')
    if len(lower) != 3 or len(voxel_size) != 3 or min(voxel_size) <= 0:
        raise ValueError('lower and voxel_size must have three entries, '
                         'voxel_size positive ones, got '
                         f'{list(lower)} and {list(voxel_size)}')
    return _cells(points, list(map(float, lower)),
                  list(map(float, voxel_size)), list(map(int, grid)))


def bev_pool_intervals(cells: Tensor,
                       grid: Sequence[int]) -> BEVPoolIntervals:
    """The lists that :func:`bev_pool` follows; from geometry alone.

    Keep the result as long as ``cells`` stay the same.

    Args:
        cells: (B, N, D, H, W) integer, of :func:`bev_cells`: for N cameras,
            D depth bins and H x W pixels; outside of the grid where not in
            [0, X * Y * Z).
        grid: number of cells X, Y, Z.

    Raises:
        ValueError: on a wrong shape or dtype, or where points or cells are
            too many for 32 bits.

    Note:
        Deterministic; reads nothing back to the host.
    """
    num_cells = _check_grid(grid)
    if cells.dim() != 5 or cells.is_floating_point():
        raise ValueError('cells must be integers of shape (B, N, D, H, W), '
                         f'got {cells.dtype} {tuple(cells.shape)}')
    if max(cells.numel(), len(cells) * num_cells) >= 2**31 - 1:
        raise ValueError(
            'bev_pool_intervals holds less than 2^31 - 1 points and cells, '
            f'got {cells.numel()} and {len(cells) * num_cells}')
    cells = cells.int()
    return BEVPoolIntervals(cells, *_intervals(cells, num_cells),
                            tuple(map(int, grid)))


def bev_pool(depth: Tensor, context: Tensor,
             intervals: BEVPoolIntervals) -> Tensor:
    """Sum depth times features over the points in each cell.

    Equals the sum over cells of the outer product of ``depth`` and
    ``context``.

    Args:
        depth: (B, N, D, H, W) floating point, the weight of each depth bin.
        context: (B, N, C, H, W) floating point. Any strides; those of
            channels_last (B * N, C, H, W) need no copy.
        intervals: of :func:`bev_pool_intervals`, for the same points.

    Returns:
        (B, Z * C, Y, X), channels_last in memory; height layer z has the
        channels z * C to (z + 1) * C. In the wider dtype of the two inputs.

    Raises:
        ValueError: on a shape or device mismatch.

    Note:
        Deterministic, forward and backward, without atomics; sums are over
        points in ascending order, in float32 for half precision. Gradients
        for ``depth`` and ``context``.
    """
    if depth.dim() != 5 or depth.shape != intervals.cells.shape:
        raise ValueError(
            'depth must have the shape (B, N, D, H, W) of the intervals, '
            f'{tuple(intervals.cells.shape)}, got {tuple(depth.shape)}')
    B, N, _, H, W = depth.shape
    if context.dim() != 5 or context.shape[:2] != (
            B, N) or context.shape[3:] != (H, W):
        raise ValueError('context must have shape (B, N, C, H, W) = '
                         f'({B}, {N}, C, {H}, {W}), got '
                         f'{tuple(context.shape)}')
    if not depth.device == context.device == intervals.cells.device:
        raise ValueError(
            'depth, context and intervals must share a device, got '
            f'{depth.device}, {context.device} and {intervals.cells.device}')
    dtype = torch.promote_types(depth.dtype, context.dtype)
    rows = _pool(
        depth.to(dtype),
        context.to(dtype).permute(0, 1, 3, 4, 2), *intervals[:4])
    X, Y, Z = intervals.grid
    channels = context.shape[2]
    if Z == 1:
        # Views that a channels_last gradient comes back through uncopied.
        return rows.view(B, Y, X, channels).permute(0, 3, 1, 2)
    maps = rows.view(B, Z, Y, X, channels).permute(0, 1, 4, 2, 3)
    return maps.flatten(1, 2).contiguous(memory_format=torch.channels_last)


def _check_grid(grid: Sequence[int]) -> int:
    if len(grid) != 3 or min(grid) < 1:
        raise ValueError('grid must hold three positive numbers of cells, '
                         f'got {list(grid)}')
    return int(grid[0] * grid[1] * grid[2])
