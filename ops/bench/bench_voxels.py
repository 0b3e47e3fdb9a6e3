"""Voxels, scatter and merging of sweeps against the stock ways.

Shapes are BEVFusion's: 300,000 points of nine sweeps, voxels of 0.075 m and
0.2 m. ``MMTURBOX_BENCH_POINTS`` names a lidar file of nuScenes (float32 rows
of five) whose points are taken; without it they are made.
"""

import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from harness import Case, baselines
from torch import Tensor

from mmturbox.ops import (
    dynamic_scatter,
    dynamic_voxelize,
    hard_voxelize,
    transform_points,
    voxel_mean,
)

SIZE = [0.075, 0.075, 0.2]
RANGE = [-54.0, -54.0, -5.0, 54.0, 54.0, 3.0]
GRID = [1440, 1440, 40]
MAX_POINTS, MAX_VOXELS, NUMBER, SWEEPS = 10, 120000, 300000, 9


def one_sweep() -> Tensor:
    """(N, 5) float32: a file's, or 32 beams that meet ground and walls."""
    path = os.environ.get('MMTURBOX_BENCH_POINTS')
    if path:
        rows = np.fromfile(Path(path), np.float32).reshape(-1, 5)
        return torch.from_numpy(rows)
    generator = torch.Generator().manual_seed(0)
    azimuth = torch.arange(1085).repeat_interleave(32) / 1085 * 2 * math.pi
    ring = torch.arange(32).repeat(1085)
    tilt = torch.deg2rad(ring * 1.33 - 30.67)
    wall = 12 + 30 * torch.rand(64, generator=generator)
    wall = wall[(azimuth / (2 * math.pi) * 64).long()]
    ground = torch.where(tilt < -0.01, 1.8 / (-tilt).clamp(min=0.01).tan(),
                         1e3)
    reach = torch.minimum(wall, ground)
    reach = reach + 0.02 * torch.randn(len(reach), generator=generator)
    return torch.stack((reach * azimuth.cos(), reach * azimuth.sin(),
                        reach * tilt.tan(), 50 * torch.rand(
                            len(reach), generator=generator),
                        ring.float()), dim=1)


def sweeps_of(points: Tensor) -> list[Tensor]:
    """The sweep from nine places, half a metre apart, with noise."""
    generator = torch.Generator().manual_seed(1)
    sweeps = []
    for s in range(SWEEPS):
        moved = points.clone()
        moved[:, :3] += 0.02 * torch.randn(
            len(points), 3, generator=generator)
        moved[:, 0] += 0.5 * s
        sweeps.append(moved)
    return sweeps


class Stock:
    """mmcv's sequential algorithms, on buffers made as its layers do."""

    def __init__(self, points: Tensor) -> None:
        self.points = points
        self.library = baselines('voxels')
        self.library.hard_voxelize.restype = ctypes.c_int64
        self.where = [
            ctypes.c_void_p(points.data_ptr()),
            ctypes.c_int64(len(points)), ctypes.c_int64(points.shape[1]),
            ctypes.c_int(3), (ctypes.c_float * 3)(*SIZE),
            (ctypes.c_float * 6)(*RANGE),
            (ctypes.c_int32 * 3)(*GRID)
        ]

    def hard(self) -> tuple[Tensor, Tensor, Tensor]:
        voxels = self.points.new_zeros(MAX_VOXELS, MAX_POINTS,
                                       self.points.shape[1])
        coors = torch.zeros(MAX_VOXELS, 3, dtype=torch.int32)
        count = torch.zeros(MAX_VOXELS, dtype=torch.int32)
        # mmcv makes the table anew in each call, and in these two steps.
        table = -torch.ones(GRID[::-1], dtype=torch.int32)
        found = self.library.hard_voxelize(
            *self.where, ctypes.c_void_p(table.data_ptr()),
            ctypes.c_int64(MAX_POINTS), ctypes.c_int64(MAX_VOXELS),
            *(ctypes.c_void_p(t.data_ptr()) for t in (voxels, coors, count)))
        return voxels[:found], coors[:found], count[:found]

    def dynamic(self) -> Tensor:
        coors = torch.zeros(len(self.points), 3, dtype=torch.int32)
        self.library.dynamic_voxelize(*self.where,
                                      ctypes.c_void_p(coors.data_ptr()))
        return coors

    def mean(self) -> tuple[Tensor, Tensor, Tensor]:
        voxels, coors, count = self.hard()
        return voxels.sum(dim=1) / count[:, None], coors, count


def _assert_equal(found: tuple, expected: tuple) -> None:
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def voxel_cases(points: Tensor) -> Iterator[Case]:
    stock = Stock(points)
    limits = (SIZE, RANGE, MAX_POINTS, MAX_VOXELS)

    def check_mean() -> None:
        found, expected = voxel_mean([points], *limits), stock.mean()
        torch.testing.assert_close(found[0], expected[0])
        _assert_equal((found[1][:, 1:], found[2]), expected[1:])

    yield Case(
        'hard voxelize', stock.hard, lambda: hard_voxelize(points, *limits),
        20.0, lambda: _assert_equal(hard_voxelize(points, *limits),
                                    stock.hard()))
    yield Case(
        'dynamic voxelize', stock.dynamic,
        lambda: dynamic_voxelize(points, SIZE, RANGE), 5.0,
        lambda: _assert_equal([dynamic_voxelize(points, SIZE, RANGE)],
                              [stock.dynamic()]))
    yield Case('voxel mean', stock.mean,
               lambda: voxel_mean([points], *limits), None, check_mean)


def stock_scatter(feats: Tensor, coors: Tensor, mode: str) -> Tensor:
    """``unique`` and ``scatter_reduce``; every row is valid."""
    _, group = torch.unique(coors, dim=0, return_inverse=True)
    out = feats.new_zeros(int(group.max()) + 1, feats.shape[1])
    return out.scatter_reduce(0, group[:, None].expand_as(feats), feats,
                              {'max': 'amax', 'mean': 'mean'}[mode],
                              include_self=False)


def scatter_cases(points: Tensor) -> Iterator[Case]:
    coors = dynamic_voxelize(points, SIZE, RANGE)
    valid = coors[:, 0] >= 0
    coors = torch.nn.functional.pad(coors[valid], (1, 0))
    generator = torch.Generator().manual_seed(2)
    feats = torch.randn(len(coors), 64, generator=generator)
    feats.requires_grad_()

    def backward(out: Tensor) -> Tensor:
        return torch.autograd.grad(out.square().sum(), feats)[0]

    for mode in ('mean', 'max'):

        def stock(mode: str = mode) -> Tensor:
            return backward(stock_scatter(feats, coors, mode))

        def turbo(mode: str = mode) -> Tensor:
            return backward(dynamic_scatter(feats, coors, mode)[0])

        yield Case(
            f'dynamic scatter forward+backward ({mode})', stock, turbo, 4.0,
            lambda a=stock, b=turbo: torch.testing.assert_close(b(), a()))


def stock_merge(sweeps: list[np.ndarray], matrices: np.ndarray,
                lags: list[float]) -> Tensor:
    """The steps of mmdet3d's loading of sweeps and its range filter."""
    parts = [torch.from_numpy(sweeps[0]).clone()]
    parts[0][:, 4] = 0
    for points, matrix, lag in zip(
            sweeps[1:], matrices[1:], lags[1:], strict=True):
        points = np.copy(points)
        close = (np.abs(points[:, 0]) < 1) & (np.abs(points[:, 1]) < 1)
        points = points[~close]
        points[:, :3] = points[:, :3] @ matrix[:, :3].T
        points[:, :3] += matrix[:, 3]
        points[:, 4] = lag
        parts.append(torch.from_numpy(points))
    merged = torch.cat(parts)[:, [0, 1, 2, 4]]
    inside = torch.ones(len(merged), dtype=torch.bool)
    for axis in range(3):
        inside &= merged[:, axis] > RANGE[axis]
        inside &= merged[:, axis] < RANGE[axis + 3]
    return merged[inside]


def merge_case(sweeps: list[Tensor]) -> Case:
    angle = torch.arange(SWEEPS, dtype=torch.float64) * 0.01
    matrices = torch.eye(3, 4, dtype=torch.float64).repeat(SWEEPS, 1, 1)
    matrices[:, 0, 0] = matrices[:, 1, 1] = angle.cos()
    matrices[:, 1, 0], matrices[:, 0, 1] = angle.sin(), -angle.sin()
    matrices[:, 0, 3] = -0.5 * torch.arange(SWEEPS)
    lags = [0.05 * s for s in range(SWEEPS)]
    radii = [0.0] + [1.0] * (SWEEPS - 1)
    arrays = [s.numpy() for s in sweeps]

    def stock() -> Tensor:
        return stock_merge(arrays, matrices.numpy(), lags)

    def turbo() -> Tensor:
        return transform_points(
            sweeps, matrices, lags, columns=[0, 1, 2, 4], close_radius=radii,
            point_cloud_range=RANGE)

    return Case('merge nine sweeps and filter', stock, turbo, None,
                lambda: _assert_equal([turbo()], [stock()]))


def cases() -> Iterator[Case]:
    """Rows of voxels, scatter and sweeps."""
    sweeps = sweeps_of(one_sweep())
    points = torch.cat(sweeps)[:NUMBER].contiguous()
    yield from voxel_cases(points)
    yield from scatter_cases(points)
    yield merge_case(sweeps)
