"""Which points lie in which 3D boxes.

Definition: mmcv's ``points_in_boxes_{part,all,cpu}`` (a box is given by its
bottom centre; x and y faces are outside, z faces inside), with one difference
that is stated by a test: a point with a NaN coordinate is in no box.
"""

import torch
from torch import Tensor

from ._library import define


def _inside(points: Tensor, boxes: Tensor) -> Tensor:
    """(B, M, 3), (B, T, 7) -> (B, M, T) bool."""
    if points.dtype in (torch.float16, torch.bfloat16):
        points, boxes = points.float(), boxes.float()
    delta = points.unsqueeze(2) - boxes[:, None, :, :3]
    half = boxes[:, None, :, 3:6] / 2
    cos = torch.cos(-boxes[:, None, :, 6])
    sin = torch.sin(-boxes[:, None, :, 6])
    local_x = delta[..., 0] * cos - delta[..., 1] * sin
    local_y = delta[..., 0] * sin + delta[..., 1] * cos
    centre_z = boxes[:, None, :, 2] + half[..., 2]
    return (((points[:, :, None, 2] - centre_z).abs() <= half[..., 2])
            & (local_x.abs() < half[..., 0])
            & (local_y.abs() < half[..., 1]))


def points_in_boxes_all_reference(points: Tensor, boxes: Tensor) -> Tensor:
    return _inside(points, boxes).int()


def points_in_boxes_part_reference(points: Tensor, boxes: Tensor) -> Tensor:
    inside = _inside(points, boxes)
    if inside.shape[2] == 0:
        return points.new_full(points.shape[:2], -1, dtype=torch.int32)
    first = inside.int().argmax(dim=2)
    return torch.where(inside.any(dim=2), first, -1).int()


_all = define(
    'points_in_boxes_all(Tensor points, Tensor boxes) -> Tensor',
    points_in_boxes_all_reference,
    fake=lambda points, boxes: points.new_empty(
        (*points.shape[:2], boxes.shape[1]), dtype=torch.int32))
_part = define(
    'points_in_boxes_part(Tensor points, Tensor boxes) -> Tensor',
    points_in_boxes_part_reference,
    fake=lambda points, boxes: points.new_empty(
        points.shape[:2], dtype=torch.int32))


def _check(points: Tensor, boxes: Tensor) -> None:
    if points.dim() != 3 or points.shape[-1] != 3:
        raise ValueError('points must have shape (B, M, 3), got '
                         f'{tuple(points.shape)}')
    if boxes.dim() != 3 or boxes.shape[-1] != 7:
        raise ValueError('boxes must have shape (B, T, 7), got '
                         f'{tuple(boxes.shape)}')
    if points.shape[0] != boxes.shape[0]:
        raise ValueError('points and boxes must have the same batch size, '
                         f'got {points.shape[0]} and {boxes.shape[0]}')
    if not points.is_floating_point():
        raise ValueError(f'points must be floating, got {points.dtype}')
    if points.device != boxes.device or points.dtype != boxes.dtype:
        raise ValueError(
            'points and boxes must share device and dtype, got '
            f'{points.device} {points.dtype} and {boxes.device} {boxes.dtype}')


def points_in_boxes_part(points: Tensor, boxes: Tensor) -> Tensor:
    """The first box that holds each point.

    Args:
        points: (B, M, 3) floating; x, y, z in metres. float16 and bfloat16
            are judged in float32.
        boxes: (B, T, 7) of the same dtype; bottom centre x, y, z, sizes
            dx, dy, dz in metres, yaw about z in radians.

    Returns:
        (B, M) int32, index of the first box, or -1.

    Raises:
        ValueError: on a shape, dtype or device mismatch.

    Note:
        Deterministic. No gradient.
    """
    _check(points, boxes)
    return _part(points, boxes)


def points_in_boxes_all(points: Tensor, boxes: Tensor) -> Tensor:
    """Every box that holds each point.

    Args and errors as :func:`points_in_boxes_part`.

    Returns:
        (B, M, T) int32, 1 where box t holds point m.
    """
    _check(points, boxes)
    return _all(points, boxes)
