"""Inverses of small matrices, and affine maps of points.

Batches: the six cameras of a frame, and per-pixel or per-Gaussian matrices.
"""

from collections.abc import Callable, Iterator

import torch
from harness import Case
from torch import Tensor

from mmturbox.ops import apply_affine, rigid_inverse, small_inverse


def _assert_close(stock: Callable, turbo: Callable,
                  **close: float) -> Callable[[], None]:

    def check() -> None:
        torch.testing.assert_close(turbo(), stock(), **close)

    return check


def _inverse(shape: tuple[int, ...], size: int, device: str,
             target: float | None) -> Case:
    matrices = torch.randn(*shape, size, size, device=device)
    # Well conditioned: linalg.inv in float32 loses digits elsewhere.
    matrices += 4 * torch.eye(size, device=device)

    def stock() -> Tensor:
        return torch.linalg.inv(matrices)

    def turbo() -> Tensor:
        return small_inverse(matrices)

    count = ' x '.join(map(str, shape))
    return Case(f'batched {size}x{size} inverse, {count}', stock, turbo,
                target, _assert_close(stock, turbo, rtol=1e-2, atol=1e-3))


def _rigid(device: str) -> Case:
    rotations = torch.linalg.qr(torch.randn(10000, 3, 3))[0]
    matrices = torch.eye(4).repeat(10000, 1, 1)
    matrices[:, :3, :3] = rotations
    matrices[:, :3, 3] = torch.randn(10000, 3) * 30
    matrices = matrices.to(device)

    def stock() -> Tensor:
        return torch.linalg.inv(matrices)

    def turbo() -> Tensor:
        return rigid_inverse(matrices)

    return Case('rigid inverse, 10000', stock, turbo, None,
                _assert_close(stock, turbo, rtol=1e-3, atol=1e-3))


def _points(device: str) -> Case:
    points = torch.randn(4, 60000, 3, device=device) * 30
    matrices = torch.randn(4, 3, 4, 4, device=device)

    def stock() -> Tensor:
        out = points
        for k in (2, 1, 0):
            out = (out @ matrices[:, k, :3, :3].transpose(1, 2) +
                   matrices[:, k, None, :3, 3])
        return out

    def turbo() -> Tensor:
        return apply_affine(points, matrices)

    return Case('three affine maps of 4 x 60000 points', stock, turbo, None,
                _assert_close(stock, turbo, rtol=1e-3, atol=1e-2))


def cases(device: str = 'cpu') -> Iterator[Case]:
    torch.manual_seed(0)
    yield _inverse((6, ), 4, device, None)
    yield _inverse((6, 4000), 4, device, 3.0)
    yield _inverse((6, 10000), 4, device, 3.0)
    yield _inverse((6, 10000), 3, device, None)
    yield _rigid(device)
    yield _points(device)
