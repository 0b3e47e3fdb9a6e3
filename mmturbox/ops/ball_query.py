"""Points within a ball (PointNet++, arXiv:1706.02413), dense and stacked.

Definition: mmcv's ``ball_query``. A point or a centre that is not finite is
in no ball and has none. In the stacked form, centres and points beyond the
given counts are ignored, where mmcv reads out of bounds.
"""

import torch
from torch import Tensor

from ._library import define
from ._points import check_alike, check_clouds, compute, squared_distances


def first_hits(inside: Tensor, num_samples: int) -> Tensor:
    """(..., M, N) bool -> (..., M, S) int64 first hits, N where no more."""
    points = inside.shape[-1]
    index = torch.arange(points, device=inside.device)
    index = torch.where(inside, index, points)
    found = index.new_full((*index.shape[:-1], num_samples), points)
    taken = min(points, num_samples)
    found[..., :taken] = index.sort(dim=-1)[0][..., :taken]
    return found


def _in_shell(d2: Tensor, min_radius: float, max_radius: float) -> Tensor:
    low, high = d2.new_tensor([min_radius, max_radius])
    return (d2 == 0) | ((d2 >= low * low) & (d2 < high * high))


def ball_query_reference(points: Tensor, centers: Tensor, min_radius: float,
                         max_radius: float, num_samples: int) -> Tensor:
    d2 = squared_distances(compute(points), compute(centers))
    found = first_hits(_in_shell(d2, min_radius, max_radius), num_samples)
    first = torch.where(found[..., :1] < points.shape[1], found[..., :1], 0)
    return torch.where(found < points.shape[1], found, first).int()


def ball_query_stacked_reference(points: Tensor, counts: Tensor,
                                 centers: Tensor, center_counts: Tensor,
                                 max_radius: float,
                                 num_samples: int) -> Tensor:
    ends, center_ends = counts.cumsum(0), center_counts.cumsum(0)
    owner = torch.searchsorted(
        ends, torch.arange(len(points), device=ends.device), right=True)
    center_owner = torch.searchsorted(
        center_ends, torch.arange(len(centers), device=ends.device),
        right=True)
    d2 = squared_distances(compute(points), compute(centers))
    inside = (_in_shell(d2, 0.0, max_radius)
              & (owner == center_owner[:, None])
              & (owner < len(counts)))
    found = first_hits(inside, num_samples)
    start = torch.cat([ends.new_zeros(1), ends])[center_owner][:, None]
    if num_samples == 0:
        return found.int()
    out = torch.where(found < len(points), found,
                      found[:, :1]) - start
    none = found[:, :1] == len(points)
    padding = torch.arange(num_samples, device=out.device).clamp(max=1) - 1
    return torch.where(none, padding, out).int()


_dense = define(
    'ball_query(Tensor points, Tensor centers, float min_radius, '
    'float max_radius, int num_samples) -> Tensor',
    ball_query_reference,
    fake=lambda points, centers, low, high, num_samples: points.new_empty(
        (*centers.shape[:2], num_samples), dtype=torch.int32))
_stacked = define(
    'ball_query_stacked(Tensor points, Tensor counts, Tensor centers, '
    'Tensor center_counts, float max_radius, int num_samples) -> Tensor',
    ball_query_stacked_reference,
    fake=lambda points, counts, centers, center_counts, high, num_samples:
    points.new_empty((len(centers), num_samples), dtype=torch.int32))


def _check_stacked(points: Tensor, centers: Tensor, counts: Tensor,
                   center_counts: Tensor) -> None:
    for name, cloud in (('xyz', points), ('center_xyz', centers)):
        if cloud.dim() != 2 or cloud.shape[1] != 3 or (
                not cloud.is_floating_point()):
            raise ValueError(f'{name} must be floating (N, 3), got '
                             f'{cloud.dtype} {tuple(cloud.shape)}')
    check_alike(xyz=points, center_xyz=centers)
    check_counts(counts, center_counts, points)


def check_counts(counts: Tensor, other: Tensor, like: Tensor) -> None:
    """Two int32 (B,) tensors on the device of ``like``.

    Raises:
        ValueError: naming what they are.
    """
    for count in (counts, other):
        if count.dim() != 1 or count.dtype != torch.int32 or (
                count.device != like.device) or len(count) != len(counts):
            raise ValueError(
                'batch counts must be int32 tensors of one length on '
                f'{like.device}, got {counts.dtype} {tuple(counts.shape)} on '
                f'{counts.device} and {other.dtype} {tuple(other.shape)} on '
                f'{other.device}')


def ball_query(min_radius: float,
               max_radius: float,
               sample_num: int,
               xyz: Tensor,
               center_xyz: Tensor,
               xyz_batch_cnt: Tensor | None = None,
               center_xyz_batch_cnt: Tensor | None = None) -> Tensor:
    """Find points around centres; signature as mmcv's.

    Args:
        min_radius, max_radius: a point is taken at a distance in
            [min_radius, max_radius), and at distance zero. ``min_radius`` is
            not used in the stacked form.
        sample_num: at most that many points, those with the lowest indices.
        xyz: (B, N, 3) floating, or stacked (N1 + N2 + ..., 3); half
            precision is computed in float32.
        center_xyz: (B, M, 3), or stacked (M1 + M2 + ..., 3).
        xyz_batch_cnt: (B,) int32, N1, N2, ...; for the stacked form.
        center_xyz_batch_cnt: (B,) int32, M1, M2, ...

    Returns:
        (B, M, sample_num) or (M1 + M2 + ..., sample_num) int32 in ascending
        order; stacked indices count from the start of the sample. Where
        there are fewer points, the first is repeated. A ball without a point
        has zeros, in the stacked form -1 and then zeros.

    Raises:
        ValueError: on wrong radii, shapes, dtypes or devices.

    Note:
        Deterministic and exact. No gradient.
    """
    if not min_radius < max_radius or sample_num < 0:
        raise ValueError('ball_query needs min_radius < max_radius and '
                         f'sample_num >= 0, got {min_radius}, {max_radius} '
                         f'and {sample_num}')
    if (xyz_batch_cnt is None) != (center_xyz_batch_cnt is None):
        raise ValueError('give both batch counts or none')
    if xyz_batch_cnt is not None:
        _check_stacked(xyz, center_xyz, xyz_batch_cnt, center_xyz_batch_cnt)
        return _stacked(xyz, xyz_batch_cnt, center_xyz, center_xyz_batch_cnt,
                        float(max_radius), sample_num)
    check_clouds(xyz=xyz, center_xyz=center_xyz)
    return _dense(xyz, center_xyz, float(min_radius), float(max_radius),
                  sample_num)
