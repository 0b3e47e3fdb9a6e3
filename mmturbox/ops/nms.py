"""Non-maximum suppression of axis-aligned boxes: hard, soft, grouped.

Definition: mmcv's ``nms``, ``softnms`` and ``nms_match``, with one
difference: among equal scores the lower index always wins.
"""

import torch
from torch import Tensor

from ._boxes import (
    check_boxes,
    check_scores,
    greedy_groups,
    greedy_keep,
    new_indices,
    score_order,
    widen,
)
from ._library import define

SOFT_METHODS = {'naive': 0, 'linear': 1, 'gaussian': 2}
"""Name -> number by which mmcv and the operator know the method."""


def _areas(boxes: Tensor, offset: int) -> Tensor:
    return ((boxes[:, 2] - boxes[:, 0] + offset)
            * (boxes[:, 3] - boxes[:, 1] + offset))


def aligned_iou(box: Tensor, boxes: Tensor, offset: int) -> Tensor:
    """(4,), (K, 4) -> (K,)."""
    sides = (torch.minimum(box[2:], boxes[:, 2:])
             - torch.maximum(box[:2], boxes[:, :2]) + offset).clamp(min=0)
    overlap = sides[:, 0] * sides[:, 1]
    areas = _areas(box[None], offset) + _areas(boxes, offset)
    return overlap / (areas - overlap)


def nms_reference(boxes: Tensor, scores: Tensor, iou_threshold: float,
                  offset: int) -> Tensor:
    return greedy_keep(
        score_order(scores), lambda i, rest: aligned_iou(
            boxes[i], boxes[rest], offset) > iou_threshold)


def nms_match_reference(dets: Tensor,
                        iou_threshold: float) -> tuple[Tensor, Tensor]:
    boxes = dets[:, :4]
    order = score_order(dets[:, 4])
    groups = greedy_groups(
        order, lambda i, rest: aligned_iou(boxes[i], boxes[rest], 0) >=
        iou_threshold)
    sizes = order.new_tensor([group.numel() for group in groups])
    return torch.cat([order[:0], *groups]), sizes


def soft_nms_reference(boxes: Tensor, scores: Tensor, iou_threshold: float,
                       sigma: float, min_score: float, method: int,
                       offset: int) -> tuple[Tensor, Tensor]:
    left = torch.arange(boxes.shape[0], device=boxes.device)
    dets, inds = [boxes.new_empty((0, 5))], [left[:0]]
    while left.numel():
        best = scores.argmax()
        dets.append(torch.cat([boxes[left[best]], scores[best, None]])[None])
        inds.append(left[best, None])
        others = torch.arange(left.numel(), device=boxes.device) != best
        iou = aligned_iou(boxes[left[best]], boxes[left[others]], offset)
        if method == SOFT_METHODS['gaussian']:
            weight = torch.exp(-(iou * iou) / sigma)
        else:
            weight = 1 - iou if method == SOFT_METHODS['linear'] else 0 * iou
            weight = torch.where(iou >= iou_threshold, weight, 1)
        scores = scores[others] * weight
        stays = ~(scores < min_score)
        left, scores = left[others][stays], scores[stays]
    return torch.cat(dets), torch.cat(inds)


def _soft_fake(boxes, scores, iou_threshold, sigma, min_score, method, offset):
    inds = new_indices(boxes)
    return boxes.new_empty((inds.shape[0], 5)), inds


_nms = define(
    'nms(Tensor boxes, Tensor scores, float iou_threshold, int offset)'
    ' -> Tensor',
    nms_reference,
    fake=lambda boxes, scores, iou_threshold, offset: new_indices(boxes))
_nms_match = define(
    'nms_match(Tensor dets, float iou_threshold) -> (Tensor, Tensor)',
    nms_match_reference,
    fake=lambda dets, iou_threshold: (dets.new_empty(
        dets.shape[:1], dtype=torch.int64), new_indices(dets)))
_soft_nms = define(
    'soft_nms(Tensor boxes, Tensor scores, float iou_threshold, float sigma,'
    ' float min_score, int method, int offset) -> (Tensor, Tensor)',
    soft_nms_reference,
    fake=_soft_fake)


def _check_offset(offset: int) -> None:
    if offset not in (0, 1):
        raise ValueError(f'offset must be 0 or 1, got {offset}')


def nms(boxes: Tensor,
        scores: Tensor,
        iou_threshold: float,
        offset: int = 0) -> Tensor:
    """Drop each box that overlaps a higher-scored kept one too much.

    Args:
        boxes: (N, 4) floating point; x1, y1, x2, y2.
        scores: (N,) floating point.
        iou_threshold: a box goes where its IoU is above this.
        offset: 0 or 1; a side is ``x2 - x1 + offset`` long.

    Returns:
        (K,) int64, the kept boxes by falling score. Among equal scores the
        lower index comes first, and wins.

    Raises:
        ValueError: on a wrong shape, device or offset.
        TypeError: on boxes or scores that are not floating point.

    Note:
        Deterministic. No gradient. Half precision is computed in float32.
    """
    check_boxes('boxes', boxes, 4)
    check_scores(boxes, scores)
    _check_offset(offset)
    return _nms(*widen(boxes, scores), float(iou_threshold), offset)


def nms_match(dets: Tensor, iou_threshold: float) -> list[Tensor]:
    """Group each kept box with the boxes that it suppresses.

    Args:
        dets: (N, 5) floating point; x1, y1, x2, y2, score.
        iou_threshold: a box joins a group where its IoU with the kept one is
            this or more (:func:`nms` wants more).

    Returns:
        One int64 tensor a group, the kept index first, all by falling score.

    Errors and notes as :func:`nms`.
    """
    check_boxes('dets', dets, 5)
    members, sizes = _nms_match(*widen(dets), float(iou_threshold))
    return list(members.split(sizes.tolist()))


def soft_nms(boxes: Tensor,
             scores: Tensor,
             iou_threshold: float = 0.3,
             sigma: float = 0.5,
             min_score: float = 1e-3,
             method: str = 'linear',
             offset: int = 0) -> tuple[Tensor, Tensor]:
    """Lower the scores of overlapping boxes instead of dropping them.

    Args:
        boxes: (N, 4) floating point; x1, y1, x2, y2.
        scores: (N,) floating point.
        iou_threshold: from this IoU on, 'naive' sets the score to zero and
            'linear' multiplies it by ``1 - IoU``.
        sigma: 'gaussian' multiplies every score by ``exp(-IoU^2 / sigma)``.
        min_score: a box goes once its score is below this. The box with the
            highest score is always kept, as in mmcv.
        method: 'naive', 'linear' or 'gaussian'.
        offset: 0 or 1; a side is ``x2 - x1 + offset`` long.

    Returns:
        (K, 5) boxes with their new scores in the dtype of ``boxes``, and
        (K,) int64 indices, both in the order in which they were picked.

    Raises:
        ValueError: also on an unknown method, otherwise as :func:`nms`.

    Note:
        Deterministic. No gradient. Half precision is computed in float32.
    """
    check_boxes('boxes', boxes, 4)
    check_scores(boxes, scores)
    _check_offset(offset)
    if method not in SOFT_METHODS:
        raise ValueError(f'method must be one of {list(SOFT_METHODS)}, got '
                         f'{method!r}')
    dets, inds = _soft_nms(*widen(boxes, scores), float(iou_threshold),
                           float(sigma), float(min_score),
                           SOFT_METHODS[method], offset)
    return dets.to(boxes.dtype), inds
