"""Non-maximum suppression of rotated boxes.

Definition: mmcv's ``nms_rotated`` on CUDA (a box goes where the IoU is above
the threshold; mmcv's CPU kernel also drops it at the threshold), with the
IoU of :mod:`.box_iou_rotated`, and the lower index winning among equal scores.
"""

from torch import Tensor

from ._boxes import (
    check_boxes,
    check_scores,
    greedy_keep,
    new_indices,
    score_order,
    widen,
)
from ._library import define
from .box_iou_rotated import MODES, rotated_iou


def nms_rotated_reference(boxes: Tensor, scores: Tensor,
                          iou_threshold: float) -> Tensor:
    return greedy_keep(
        score_order(scores), lambda i, rest: rotated_iou(
            boxes[i], boxes[rest], MODES['iou']) > iou_threshold)


_nms_rotated = define(
    'nms_rotated(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor',
    nms_rotated_reference,
    fake=lambda boxes, scores, iou_threshold: new_indices(boxes))


def nms_rotated(boxes: Tensor, scores: Tensor,
                iou_threshold: float) -> Tensor:
    """Drop each rotated box that overlaps a higher-scored kept one too much.

    Args:
        boxes: (N, 5) floating point, any strides; centre x, y, width,
            height, angle in radians (see :func:`box_iou_rotated`).
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
    check_boxes('boxes', boxes, 5)
    check_scores(boxes, scores)
    return _nms_rotated(*widen(boxes, scores), float(iou_threshold))
