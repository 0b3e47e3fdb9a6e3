"""Overlap and suppression of 3D boxes in bird's eye view.

Definition: mmcv's ``boxes_overlap_bev``, ``nms3d`` and ``nms3d_normal``: z
and height play no part. All of it is the rotated and the axis-aligned
operators on columns of the boxes. One difference: mmcv's kernels count a
corner up to 1 cm outside a box as inside, which makes overlaps jump; ours are
exact, and near the threshold ``nms3d`` can decide otherwise for small boxes.
"""

import torch
from torch import Tensor

from ._boxes import check_boxes, check_scores
from .box_iou_rotated import box_iou_rotated
from .nms import nms
from .nms_rotated import nms_rotated


def _bev(boxes: Tensor) -> Tensor:
    """(N, 7) -> (N, 5) x, y, dx, dy, yaw."""
    return boxes[:, [0, 1, 3, 4, 6]]


def boxes_overlap_bev(boxes_a: Tensor, boxes_b: Tensor) -> Tensor:
    """Area that each pair of boxes shares, seen from above.

    Args:
        boxes_a: (M, 7) floating point; centre x, y, z, sizes dx, dy, dz in
            metres, yaw about z in radians.
        boxes_b: (N, 7) likewise.

    Returns:
        (M, N) square metres in the dtype of ``boxes_a``.

    Raises:
        ValueError: on a wrong shape or device.
        TypeError: on boxes that are not floating point.

    Note:
        Deterministic. No gradient. Computed in float64 for every dtype.
    """
    check_boxes('boxes_a', boxes_a, 7)
    check_boxes('boxes_b', boxes_b, 7)
    return box_iou_rotated(_bev(boxes_a), _bev(boxes_b), mode='area')


def nms3d(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Suppress boxes by the IoU of their rotated outlines from above.

    Args:
        boxes: (N, 7) floating point as in :func:`boxes_overlap_bev`.
        scores: (N,) floating point.
        iou_threshold: a box goes where its IoU is above this.

    Returns:
        (K,) int64, the kept boxes by falling score. Among equal scores the
        lower index comes first, and wins.

    Raises:
        ValueError: on a wrong shape or device.
        TypeError: on boxes or scores that are not floating point.

    Note:
        Deterministic. No gradient. Half precision is widened to float32.
    """
    check_boxes('boxes', boxes, 7)
    return nms_rotated(_bev(boxes), scores, iou_threshold)


def nms3d_normal(boxes: Tensor, scores: Tensor,
                 iou_threshold: float) -> Tensor:
    """As :func:`nms3d`, with every yaw taken as zero."""
    check_boxes('boxes', boxes, 7)
    check_scores(boxes, scores)
    # Corners far from the origin keep the size of a box only in float64.
    centre, half = boxes[:, :2].double(), boxes[:, 3:5].double() / 2
    corners = torch.cat([centre - half, centre + half], dim=1)
    return nms(corners, scores, iou_threshold)
