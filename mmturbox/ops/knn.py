"""The k nearest points of a cloud.

Definition: mmcv's ``knn``, with these differences: equally near points are in
the order of their indices (mmcv's heap leaves the order open); neighbours
more than 1e5 m away are found; any k; a point or a centre that is not finite
is nobody's neighbour and has none.
"""

import torch
from torch import Tensor

from ._library import define
from ._points import check_clouds, compute, squared_distances


def k_nearest_reference(points: Tensor, centers: Tensor,
                        k: int) -> tuple[Tensor, Tensor]:
    points, centers = compute(points), compute(centers)
    batch, queries = centers.shape[:2]
    index = points.new_zeros((batch, queries, k), dtype=torch.int32)
    distance = points.new_full((batch, queries, k), torch.inf)
    found = min(k, points.shape[1])
    for start in range(0, queries, 1024):
        rows = slice(start, start + 1024)
        d2 = squared_distances(points, centers[:, rows])
        d2 = torch.where(d2 < torch.inf, d2, torch.inf)
        d2, order = d2.sort(dim=2, stable=True)
        distance[:, rows, :found] = d2[..., :found]
        index[:, rows, :found] = torch.where(d2 < torch.inf, order,
                                             0)[..., :found].int()
    return index, distance


def _fake(points: Tensor, centers: Tensor,
          k: int) -> tuple[Tensor, Tensor]:
    shape = (*centers.shape[:2], k)
    return (points.new_empty(shape, dtype=torch.int32),
            points.new_empty(shape, dtype=compute(points).dtype))


k_nearest = define(
    'k_nearest(Tensor points, Tensor centers, int k) -> (Tensor, Tensor)',
    k_nearest_reference,
    fake=_fake)
"""(B, N, 3), (B, M, 3) -> int32 indices and squared distances, (B, M, k)."""


def knn(k: int,
        xyz: Tensor,
        center_xyz: Tensor | None = None,
        transposed: bool = False) -> Tensor:
    """Find the k nearest points; signature as mmcv's.

    Args:
        k: neighbours per centre, > 0.
        xyz: (B, N, 3) floating, or (B, 3, N) if ``transposed``; half
            precision is computed in float32.
        center_xyz: (B, M, 3), or (B, 3, M) if ``transposed``; ``xyz`` itself
            if left out.
        transposed: the layout of both.

    Returns:
        (B, k, M) int32, nearest first. Where a centre has fewer than k
        neighbours, the rest is 0.

    Raises:
        ValueError: on a wrong k, shape, dtype or device.

    Note:
        Deterministic and exact; ties by index. No gradient.
    """
    if k <= 0:
        raise ValueError(f'k must be positive, got {k}')
    center_xyz = xyz if center_xyz is None else center_xyz
    if transposed:
        xyz, center_xyz = xyz.transpose(1, 2), center_xyz.transpose(1, 2)
    check_clouds(xyz=xyz, center_xyz=center_xyz)
    return k_nearest(xyz, center_xyz, k)[0].transpose(1, 2).contiguous()
