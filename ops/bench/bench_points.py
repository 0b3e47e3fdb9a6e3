"""Sampling, grouping and pooling of points.

mmcv has no CPU form of these: the stock side does what its CUDA kernels do,
one point after the other (``baselines_points.cpp``), or takes PyTorch's own
gather and scatter. Shapes are those of PointNet++, 3DSSD, GaussianFormer's
lifter and Part-A2. Grouping and RoI-aware pooling write results of 34 and 180
MB, whose fresh memory costs more than what is computed.
"""

import ctypes
from collections.abc import Callable, Iterator

import torch
from harness import Case, baselines
from torch import Tensor

from mmturbox.ops import (
    ball_query,
    furthest_point_sample,
    group_points,
    knn,
    roiaware_pool3d,
    three_interpolate,
    three_nn,
)


def _call(function: Callable, *arguments: Tensor | int | float) -> None:
    kinds = {int: ctypes.c_int64, float: ctypes.c_float}
    function(*(ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else
               kinds[type(x)](x) for x in arguments))


def _cloud(number: int, seed: int = 0) -> Tensor:
    """Points around a car, thinner with the distance: 100 m x 100 m."""
    generator = torch.Generator().manual_seed(seed)
    angle, radius, height = torch.rand(3, number, generator=generator)
    angle, radius = angle * 6.2832, 2 + 48 * radius**1.5
    return torch.stack((radius * angle.cos(), radius * angle.sin(),
                        height.square() * 4 - 2), 1)


def _assert_equal(stock: Callable, turbo: Callable) -> Callable[[], None]:

    def check() -> None:
        assert torch.equal(stock(), turbo()), 'stock and turbo differ'

    return check


def _sampling(stock: ctypes.CDLL, number: int, picks: int) -> Case:
    points = _cloud(number)

    def run_stock() -> Tensor:
        out = torch.zeros(picks, dtype=torch.int32)
        _call(stock.stock_fps, points, number, picks, out)
        return out

    def run_turbo() -> Tensor:
        return furthest_point_sample(points[None], picks)[0]

    return Case(f'furthest point sampling, {picks} of {number}', run_stock,
                run_turbo, check=_assert_equal(run_stock, run_turbo))


def _balls(stock: ctypes.CDLL, radius: float, samples: int) -> Case:
    points = _cloud(16384)
    centers = points[:4096].contiguous()

    def run_stock() -> Tensor:
        out = torch.zeros(4096, samples, dtype=torch.int32)
        _call(stock.stock_ball_query, points, centers, 16384, 4096, radius,
              samples, out)
        return out

    def run_turbo() -> Tensor:
        return ball_query(0, radius, samples, points[None], centers[None])[0]

    return Case(
        f'ball query, {samples} in {radius} m, 4096 of 16384', run_stock,
        run_turbo, check=_assert_equal(run_stock, run_turbo))


def _nearest(stock: ctypes.CDLL, k: int) -> Case:
    points = _cloud(16384)
    centers = points[:4096].contiguous()

    def run_stock() -> Tensor:
        out = torch.zeros(4096, k, dtype=torch.int32)
        _call(stock.stock_knn, points, centers, 16384, 4096, k, out)
        return out

    def run_turbo() -> Tensor:
        if k == 3:
            return three_nn(centers[None], points[None])[1][0]
        return knn(k, points[None], centers[None])[0].t()

    return Case(f'{k} nearest, 4096 of 16384', run_stock, run_turbo,
                check=_assert_equal(run_stock, run_turbo))


def _grouping() -> Case:
    points = _cloud(16384)[None]
    index = ball_query(0, 0.8, 32, points, points[:, :4096])
    features = torch.randn(1, 64, 16384, requires_grad=True)
    flat = index.long().flatten(1)[:, None].expand(-1, 64, -1)

    def run(group: Callable[[], Tensor]) -> Tensor:
        out = group()
        return torch.autograd.grad(out, features, out.detach())[0]

    def run_stock() -> Tensor:
        return run(lambda: features.gather(2, flat))

    def run_turbo() -> Tensor:
        return run(lambda: group_points(features, index))

    return Case('grouping forward+backward, 64 x 4096 x 32', run_stock,
                run_turbo, check=_assert_equal(run_stock, run_turbo))


def _interpolation() -> Case:
    points = _cloud(16384)[None]
    distance, index = three_nn(points, points[:, :4096])
    weight = 1 / (distance + 1e-8)
    weight = weight / weight.sum(2, keepdim=True)
    features = torch.randn(1, 256, 4096, requires_grad=True)
    flat = index.long().flatten(1)[:, None].expand(-1, 256, -1)

    def run(interpolate: Callable[[], Tensor]) -> Tensor:
        out = interpolate()
        return torch.autograd.grad(out, features, out.detach())[0]

    def run_stock() -> Tensor:
        return run(lambda: (features.gather(2, flat).unflatten(2, (-1, 3)) *
                            weight[:, None]).sum(3))

    def run_turbo() -> Tensor:
        return run(lambda: three_interpolate(features, index, weight))

    return Case(
        'three-NN interpolation forward+backward, 256 x 16384', run_stock,
        run_turbo, check=lambda: torch.testing.assert_close(
            run_stock(), run_turbo()))


def _roiaware(stock: ctypes.CDLL) -> Case:
    points, features = _cloud(20000), torch.randn(20000, 64)
    rois = torch.cat([points[:128], torch.rand(128, 4)], 1)
    rois[:, 3:6] = rois[:, 3:6] + torch.tensor([3.5, 1.2, 1.2])
    rois[:, 6] *= 6.3

    def run_stock() -> Tensor:
        lists = torch.zeros(128, 14**3, 128, dtype=torch.int32)
        out = torch.zeros(128, 14, 14, 14, 64)
        argmax = torch.zeros(out.shape, dtype=torch.int32)
        _call(stock.stock_roiaware, rois, points, features, 128, 20000, 64,
              14, 128, lists, out, argmax)
        return out

    def run_turbo() -> Tensor:
        return roiaware_pool3d(rois, points, features, 14)

    return Case('RoI-aware max pooling, 128 boxes of 14^3', run_stock,
                run_turbo, check=lambda: torch.testing.assert_close(
                    run_stock().sum(), run_turbo().sum()))


def cases() -> Iterator[Case]:
    stock = baselines('points')
    yield _sampling(stock, 16384, 4096)
    yield _sampling(stock, 129600, 1200)
    yield _balls(stock, 0.8, 16)
    yield _balls(stock, 4.0, 32)
    yield _nearest(stock, 16)
    yield _nearest(stock, 3)
    yield _grouping()
    yield _interpolation()
    yield _roiaware(stock)
