"""Furthest point sampling (PointNet++, arXiv:1706.02413).

Definition: mmcv's ``furthest_point_sample`` and ``..._with_dist``, with three
differences: among equally far points the one with the lowest index is taken
(mmcv takes it within a thread and the lowest thread of a block); squared
distances above 1e10 count as what they are; and a point that is not finite is
never picked, so that the picks are those of the cloud without such points.
"""

import torch
from torch import Tensor

from ._library import define
from ._points import check_clouds, compute, is_point, squared_distances


def furthest_point_sample_reference(points: Tensor,
                                    num_points: int) -> Tensor:
    points = compute(points)
    picks = points.new_zeros((len(points), num_points), dtype=torch.int32)
    distance = torch.where(is_point(points), torch.inf, -1.0).to(points)
    for j in range(num_points):
        pick = distance.argmax(1)
        picks[:, j] = pick
        there = points.gather(1, pick[:, None, None].expand(-1, 1, 3))
        new = squared_distances(points, there).squeeze(1)
        distance = torch.where(new < distance, new, distance)
    return picks


def furthest_point_sample_with_dist_reference(distances: Tensor,
                                              num_points: int) -> Tensor:
    matrix = compute(distances)
    picks = matrix.new_zeros((len(matrix), num_points), dtype=torch.int32)
    own = matrix.diagonal(dim1=1, dim2=2)
    distance = torch.where(own.isnan(), -torch.inf, torch.inf).to(matrix)
    for j in range(num_points):
        pick = distance.argmax(1)
        picks[:, j] = pick
        new = matrix.gather(
            1, pick[:, None, None].expand(-1, 1, matrix.shape[2])).squeeze(1)
        distance = torch.where(new < distance, new, distance)
    return picks


def _fake(points: Tensor, num_points: int) -> Tensor:
    return points.new_empty((len(points), num_points), dtype=torch.int32)


_sample = define(
    'furthest_point_sample(Tensor points, int num_points) -> Tensor',
    furthest_point_sample_reference,
    fake=_fake)
_sample_with_dist = define(
    'furthest_point_sample_with_dist(Tensor distances, int num_points) -> '
    'Tensor',
    furthest_point_sample_with_dist_reference,
    fake=_fake)


def _check_number(num_points: int, available: int) -> None:
    if num_points < 0 or (num_points > 0 and available == 0):
        raise ValueError(f'cannot pick {num_points} of {available} points')


def furthest_point_sample(points_xyz: Tensor, num_points: int) -> Tensor:
    """Pick points one after the other, each the furthest from those before.

    Args:
        points_xyz: (B, N, 3) floating; half precision is computed in float32.
        num_points: picks per cloud. When all points are picked already, the
            lowest index is picked again.

    Returns:
        (B, num_points) int32, indices in [0, N). The first is 0 (the first
        finite point; 0 also where no point is finite).

    Raises:
        ValueError: on a wrong shape or dtype, or no point to pick.

    Note:
        Deterministic and exact on every device; equally far points are taken
        by index. No gradient. On the CPU the points are sorted into small
        boxes first, and a pick visits only the boxes that it can change:
        picks cost about N / 64 tests of a box in place of N distances.
    """
    check_clouds(points_xyz=points_xyz)
    _check_number(num_points, points_xyz.shape[1])
    return _sample(points_xyz, num_points)


def furthest_point_sample_with_dist(points_dist: Tensor,
                                    num_points: int) -> Tensor:
    """As :func:`furthest_point_sample`, from given distances.

    Args:
        points_dist: (B, N, N) floating; row i holds the distances from point
            i. A point whose distance to itself is NaN is never picked.
        num_points: picks per cloud.

    Returns:
        (B, num_points) int32.

    Raises:
        ValueError: on a wrong shape or dtype, or no point to pick.

    Note:
        Deterministic. No gradient.
    """
    if points_dist.dim() != 3 or (
            points_dist.shape[1] != points_dist.shape[2]) or (
                not points_dist.is_floating_point()):
        raise ValueError('points_dist must be floating (B, N, N), got '
                         f'{points_dist.dtype} {tuple(points_dist.shape)}')
    _check_number(num_points, points_dist.shape[1])
    return _sample_with_dist(points_dist, num_points)
