"""Suppression within each class of each sample, in one call.

Definition: greedy suppression run apart for every (sample, class), the kept
boxes of a sample merged by score. mmcv's ``batched_nms`` reaches it by moving
the classes apart, which costs coordinates their precision; here the class is
compared. Kinds of boxes as in :mod:`.nms`, :mod:`.nms_rotated`, :mod:`.iou3d`
and :mod:`.circle_nms`.
"""

import torch
from torch import Tensor

from ._boxes import check_boxes, check_scores, score_order, widen
from ._library import define
from .box_iou_rotated import MODES, rotated_iou
from .nms import aligned_iou

KINDS = {'aligned': 4, 'rotated': 5, 'bev': 7, 'circle': 2}
"""Kind of boxes -> its number of columns."""
_NUMBERS = {'aligned': 0, 'rotated': 1, 'bev': 1, 'circle': 2}


def _suppressed(box: Tensor, boxes: Tensor, kind: int, threshold: float,
                offset: int) -> Tensor:
    """(D,), (K, D) -> (K,) bool."""
    if kind == _NUMBERS['aligned']:
        return aligned_iou(box, boxes, offset) > threshold
    if kind == _NUMBERS['rotated']:
        return rotated_iou(box, boxes, MODES['iou']) > threshold
    squared = (box - boxes).square()
    return (squared[:, 0] + squared[:, 1]).double() <= threshold


def batched_nms_reference(boxes: Tensor, scores: Tensor,
                          classes: Tensor | None, samples: Tensor | None,
                          valid: Tensor | None, kind: int, threshold: float,
                          offset: int, num_samples: int,
                          max_out: int) -> tuple[Tensor, Tensor]:
    none = boxes.new_zeros(boxes.shape[:1], dtype=torch.int64)
    classes = none if classes is None else classes
    samples = none if samples is None else samples
    keep = none.new_full((num_samples, max_out), -1)
    counts = none.new_zeros(num_samples)
    order = score_order(scores)
    if valid is not None:
        order = order[valid[order]]
    for sample in range(num_samples):
        left, found = order[samples[order] == sample], []
        while left.numel() and len(found) < max_out:
            first, rest = left[0], left[1:]
            found.append(first)
            gone = (classes[rest] == classes[first]) & _suppressed(
                boxes[first], boxes[rest], kind, threshold, offset)
            left = rest[~gone]
        counts[sample] = len(found)
        if found:
            keep[sample, :len(found)] = torch.stack(found)
    return keep, counts


def _fake(boxes, scores, classes, samples, valid, kind, threshold, offset,
          num_samples, max_out):
    return (boxes.new_empty((num_samples, max_out), dtype=torch.int64),
            boxes.new_empty((num_samples, ), dtype=torch.int64))


_batched_nms = define(
    'batched_nms(Tensor boxes, Tensor scores, Tensor? classes, '
    'Tensor? samples, Tensor? valid, int kind, float threshold, int offset, '
    'SymInt num_samples, SymInt max_out) -> (Tensor, Tensor)',
    batched_nms_reference, _fake)


def _integers(name: str, ids: Tensor | None, like: Tensor) -> Tensor | None:
    if ids is None:
        return None
    if ids.shape != like.shape or ids.device != like.device:
        raise ValueError(
            f'{name} must have shape {tuple(like.shape)} on {like.device}, '
            f'got {tuple(ids.shape)} on {ids.device}')
    if ids.is_floating_point() or ids.is_complex():
        raise TypeError(f'{name} must be integers, got {ids.dtype}')
    return ids


def _suppress(boxes, scores, classes, samples, valid, kind, threshold, offset,
              num_samples, max_out):
    if kind not in KINDS:
        raise ValueError(f'kind must be one of {list(KINDS)}, got {kind!r}')
    check_boxes('boxes', boxes, KINDS[kind])
    check_scores(boxes, scores)
    classes = _integers('classes', classes, scores)
    samples = _integers('samples', samples, scores)
    valid = _integers('valid', valid, scores)
    if offset not in (0, 1):
        raise ValueError(f'offset must be 0 or 1, got {offset}')
    if max_out is not None and max_out < 0:
        raise ValueError(f'max_out must not be negative, got {max_out}')
    if kind == 'bev':
        boxes = boxes[:, [0, 1, 3, 4, 6]]
    return _batched_nms(
        *widen(boxes, scores), classes if classes is None else classes.long(),
        samples if samples is None else samples.long(),
        valid if valid is None else valid.bool(), _NUMBERS[kind],
        float(threshold), offset, num_samples, max_out)


def batched_nms(boxes: Tensor,
                scores: Tensor,
                threshold: float,
                classes: Tensor | None = None,
                *,
                kind: str = 'aligned',
                samples: Tensor | None = None,
                num_samples: int = 1,
                valid: Tensor | None = None,
                max_out: int | None = None,
                offset: int = 0) -> tuple[Tensor, Tensor]:
    """Suppress boxes of one class of one sample by each other.

    Args:
        boxes: (N, D) floating point. 'aligned': x1, y1, x2, y2; 'rotated':
            centre x, y, width, height, angle; 'bev': centre x, y, z, sizes
            dx, dy, dz, yaw, of which the outline from above counts;
            'circle': x, y. Metres or pixels, radians.
        scores: (N,) floating point.
        threshold: a box goes where its IoU with a better one is above this;
            with 'circle', where the squared distance is this or less.
        classes: (N,) integers; boxes of different ones never meet.
        kind: of the boxes, see above.
        samples: (N,) integers in [0, num_samples), the sample of each box;
            boxes of any other number are left out.
        num_samples: the rows of the result.
        valid: (N,) bool; the other boxes take no part.
        max_out: at most so many boxes a sample are given; N if left out.
        offset: 0 or 1; a side of an aligned box is ``x2 - x1 + offset`` long.

    Returns:
        (num_samples, max_out) int64, the kept boxes by falling score, then
        -1; and (num_samples,) int64, how many there are. Among equal scores
        the lower index comes first, and wins.

    Raises:
        ValueError: on a wrong shape, device, kind or number.
        TypeError: on boxes or scores that are not floating point, or ids that
            are not integers.

    Note:
        Deterministic, without waiting for the device. No gradient. Half
        precision is computed in float32.
    """
    if max_out is None:
        max_out = boxes.shape[0]
    return _suppress(boxes, scores, classes, samples, valid, kind, threshold,
                     offset, num_samples, max_out)


def batched_nms_padded(boxes: Tensor,
                       scores: Tensor,
                       threshold: float,
                       classes: Tensor | None = None,
                       *,
                       kind: str = 'aligned',
                       valid: Tensor | None = None,
                       max_out: int | None = None,
                       offset: int = 0) -> tuple[Tensor, Tensor]:
    """:func:`batched_nms` of equally many boxes a sample, as a head has them.

    Args:
        boxes: (B, K, D) floating point.
        scores, classes, valid: (B, K).
        threshold, kind, max_out, offset: as in :func:`batched_nms`.

    Returns:
        (B, max_out) int64 in [0, K), the kept boxes of each sample by falling
        score, then -1; and (B,) int64, how many there are.

    Errors and notes as :func:`batched_nms`.
    """
    if boxes.dim() != 3 or scores.shape != boxes.shape[:2]:
        raise ValueError('boxes and scores must have shapes (B, K, D) and '
                         f'(B, K), got {tuple(boxes.shape)} and '
                         f'{tuple(scores.shape)}')
    batch, number = scores.shape
    for name, ids in (('classes', classes), ('valid', valid)):
        _integers(name, ids, scores)
    first = torch.arange(batch, device=boxes.device)[:, None]
    keep, counts = _suppress(
        boxes.flatten(0, 1), scores.flatten(),
        None if classes is None else classes.flatten(),
        first.expand(batch, number).flatten(),
        None if valid is None else valid.flatten(), kind, threshold, offset,
        batch, number if max_out is None else max_out)
    return torch.where(keep < 0, keep, keep - first * number), counts


def multiclass_nms(boxes: Tensor,
                   scores: Tensor,
                   threshold: float,
                   classes: Tensor | None = None,
                   *,
                   kind: str = 'aligned',
                   valid: Tensor | None = None,
                   max_out: int | None = None,
                   offset: int = 0) -> Tensor:
    """:func:`batched_nms` of one sample, cut to the boxes that are kept.

    Returns:
        (K,) int64 by falling score.

    Errors and notes as :func:`batched_nms`, but reading K waits for the
    device once.
    """
    keep, counts = batched_nms(
        boxes,
        scores,
        threshold,
        classes,
        kind=kind,
        valid=valid,
        max_out=max_out,
        offset=offset)
    return keep[0, :int(counts)]
