"""BEV pooling against the outer product and ``index_add_``.

The shape is BEVFusion's: six cameras round the car, 118 depth bins, maps of
32 x 88, 80 channels, 360 x 360 cells of 0.3 m.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from harness import Case, Skipped
from torch import Tensor

from mmturbox.ops import bev_cells, bev_pool, bev_pool_intervals

GRID = (360, 360, 1)
LOWER, SIZE = (-54.0, -54.0, -10.0), (0.3, 0.3, 20.0)
YAWS = (0, 55, 110, 180, 250, 305)


def frustum(device: str = 'cpu') -> Tensor:
    """(1, 6, 118, 32, 88, 3) points in metres, x forward: pinhole cameras
    1.5 m above the ground, a degree tilted, rolled by augmentation."""
    bins, height, width, focal = 118, 32, 88, 560.0
    depth = torch.arange(bins).view(-1, 1, 1) * 0.5 + 1
    column = (torch.arange(width) * 8 + 4 - 352) / focal
    row = ((torch.arange(height) * 8 + 4 - 110) / focal).view(-1, 1)
    roll, tilt = math.radians(2), math.radians(1)
    across = column * math.cos(roll) - row * math.sin(roll)
    down = column * math.sin(roll) + row * math.cos(roll) + tilt
    left, up = -across * depth, 1.5 - down * depth
    depth = depth.expand_as(left)
    points = []
    for yaw in map(math.radians, YAWS):
        points.append(torch.stack((
            depth * math.cos(yaw) - left * math.sin(yaw),
            depth * math.sin(yaw) + left * math.cos(yaw), up), -1))
    return torch.stack(points)[None].to(device)


def _outer_product(depth: Tensor, context: Tensor, rows: Tensor) -> Tensor:
    """``rows`` sends what is outside to a row more."""
    last = context.permute(0, 1, 3, 4, 2).contiguous()
    products = depth[..., None] * last[:, :, None]
    channels, cells = context.shape[2], GRID[0] * GRID[1]
    out = products.new_zeros(cells + 1, channels)
    out = out.index_add_(0, rows, products.view(-1, channels))
    return out[:-1].view(1, GRID[1], GRID[0], channels).permute(0, 3, 1, 2)


def _peak_megabytes(run: Callable) -> float:
    """How far the resident memory rises above what it is now, in MB."""
    process = Path('/proc/self')

    def resident(key: str) -> float:
        lines = (process / 'status').read_text().splitlines()
        line = next(line for line in lines if line.startswith(key))
        return float(line.split()[1]) * 1024 / 1e6

    (process / 'clear_refs').write_text('5')
    before = resident('VmRSS')
    run()
    return resident('VmHWM') - before


def _peak_on_device(run: Callable) -> float:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def cases(device: str = 'cpu') -> Iterator[Case | Skipped]:
    generator = torch.Generator().manual_seed(0)
    depth = torch.randn(1, 6, 118, 32, 88, generator=generator).softmax(2)
    context = torch.randn(1, 6, 80, 32, 88, generator=generator)
    # Both maps are channels_last, and so is the gradient that the next
    # convolution gives them.
    grad = torch.randn(1, 80, 360, 360, generator=generator).to(
        device, memory_format=torch.channels_last)
    leaves = (depth.to(device).requires_grad_(),
              context.to(device).requires_grad_())
    cells = bev_cells(frustum(device), LOWER, SIZE, GRID)
    rows = torch.where(cells < 0, GRID[0] * GRID[1], cells).flatten().long()
    kept = bev_pool_intervals(cells, GRID)

    def stock(backward: bool = True):
        out = _outer_product(*leaves, rows)
        return torch.autograd.grad(out, leaves, grad) if backward else out

    def turbo(backward: bool = True, intervals=None):
        lists = intervals or bev_pool_intervals(cells, GRID)
        out = bev_pool(*leaves, lists)
        return torch.autograd.grad(out, leaves, grad) if backward else out

    def check() -> None:
        torch.testing.assert_close(turbo(False), stock(False))
        for ours, theirs in zip(turbo(), stock(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)

    yield Case('BEV pool forward+backward', stock, turbo, 8.0, check)
    yield Case('BEV pool forward+backward, kept intervals', stock,
               lambda: turbo(intervals=kept), 8.0)
    yield Case('BEV pool forward, kept intervals', lambda: stock(False),
               lambda: turbo(False, kept))
    peak = _peak_on_device if device == 'cuda' else _peak_megabytes
    if device == 'cpu' and not Path('/proc/self/clear_refs').exists():
        yield Skipped('BEV pool peak memory', 'needs /proc')
        return
    yield Case('BEV pool peak memory', lambda: peak(stock),
               lambda: peak(turbo), 10.0, unit='MB')
