"""Suppression and overlap of boxes under the names of ``mmcv._ext``."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from .. import box_iou_rotated as _box_iou_rotated
from .. import (
    boxes_overlap_bev,
    multiclass_nms,
    nms3d,
    nms3d_normal,
    soft_nms,
    sort_vertices,
)
from .. import nms as _nms
from .. import nms_match as _nms_match
from .. import nms_rotated as _nms_rotated
from ..box_iou_rotated import MODES
from ..nms import SOFT_METHODS
from ._provided import provides

_SOFT_NAMES = {number: name for name, number in SOFT_METHODS.items()}
_MODE_NAMES = {number: name for name, number in MODES.items()}


@provides
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float,
        offset: int) -> Tensor:
    return _nms(boxes, scores, iou_threshold, offset)


@provides
def softnms(boxes: Tensor, scores: Tensor, dets: Tensor, iou_threshold: float,
            sigma: float, min_score: float, method: int,
            offset: int) -> Tensor:
    """Fill the first rows of ``dets`` (N, 5); return as many indices."""
    out, inds = soft_nms(boxes, scores, iou_threshold, sigma, min_score,
                         _SOFT_NAMES[method], offset)
    dets[:len(out)] = out
    return inds


@provides
def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    return [group.tolist() for group in _nms_match(dets, iou_threshold)]


@provides
def nms_rotated(dets: Tensor, scores: Tensor, order: Tensor,
                dets_sorted: Tensor, labels: Tensor, iou_threshold: float,
                multi_label: bool) -> Tensor:
    """``order`` and ``dets_sorted`` come from an unstable sort: not used.

    With ``multi_label`` the labels are a sixth column of ``dets``; mmcv's
    kernels do not look at them, and its own test wants it so.
    """
    return _nms_rotated(dets[:, :5], scores, iou_threshold)


@provides
def box_iou_rotated(boxes1: Tensor, boxes2: Tensor, ious: Tensor,
                    mode_flag: int, aligned: bool) -> None:
    """Fill ``ious``: (N,) if aligned, else (N * M,) or (N, M)."""
    out = _box_iou_rotated(boxes1, boxes2, _MODE_NAMES[mode_flag], aligned)
    ious.copy_(out.view_as(ious))


@provides
def iou3d_boxes_overlap_bev_forward(boxes_a: Tensor, boxes_b: Tensor,
                                    ans_iou: Tensor) -> None:
    """Fill ``ans_iou`` (M, N)."""
    ans_iou.copy_(boxes_overlap_bev(boxes_a, boxes_b))


def _fill_keep(kept: Tensor, keep: Tensor, num_out: Tensor) -> None:
    keep[:len(kept)] = kept
    num_out.fill_(len(kept))


@provides
def iou3d_nms3d_forward(boxes: Tensor, keep: Tensor, num_out: Tensor,
                        nms_overlap_thresh: float) -> None:
    """Fill the first ``num_out`` of ``keep``; boxes come sorted by score."""
    equal = boxes.new_zeros(boxes.shape[0])
    _fill_keep(nms3d(boxes, equal, nms_overlap_thresh), keep, num_out)


@provides
def iou3d_nms3d_normal_forward(boxes: Tensor, keep: Tensor, num_out: Tensor,
                               nms_overlap_thresh: float) -> None:
    """As ``iou3d_nms3d_forward``, yaw taken as zero."""
    equal = boxes.new_zeros(boxes.shape[0])
    _fill_keep(nms3d_normal(boxes, equal, nms_overlap_thresh), keep, num_out)


@provides
def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int,
                  aligned: bool, offset: int) -> None:
    """Fill ``ious``: (N,) if aligned, else (N, M)."""
    a, b = (bboxes1, bboxes2) if aligned else (bboxes1[:, None], bboxes2[None])
    sides = (torch.minimum(a[..., 2:], b[..., 2:])
             - torch.maximum(a[..., :2], b[..., :2]) + offset).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    area_a, area_b = ((t[..., 2] - t[..., 0] + offset)
                      * (t[..., 3] - t[..., 1] + offset) for t in (a, b))
    base = area_a if mode == MODES['iof'] else area_a + area_b - shared
    ious.copy_(shared / base.clamp(min=offset))


@provides
def diff_iou_rotated_sort_vertices_forward(vertices: Tensor, mask: Tensor,
                                           num_valid: Tensor) -> Tensor:
    """(B, N, 24, 2), (B, N, 24) -> (B, N, 9) int32.

    ``num_valid`` is the sum of ``mask``: not used. Corners that coincide are
    counted once.
    """
    return sort_vertices(vertices, mask)


def batched_nms(stock: Callable) -> Callable:
    """mmcv's ``batched_nms`` that compares classes where ``stock`` moves them.

    Takes over 'nms' and 'nms_rotated'; there is one wait for the device.
    From ``split_thr`` boxes on mmcv goes by class even with
    ``class_agnostic``, and so does this. What it does not know (soft NMS,
    other options) it leaves to ``stock``.
    """
    known = {
        'nms': ('aligned', {'iou_threshold', 'iou_thr', 'offset',
                            'score_threshold', 'max_num'}),
        'nms_rotated': ('rotated', {'iou_threshold'}),
    }

    @functools.wraps(stock)
    def wrapper(boxes, scores, idxs, nms_cfg, class_agnostic=False):
        cfg = dict(nms_cfg or {})
        given, class_agnostic = class_agnostic, cfg.pop(
            'class_agnostic', class_agnostic)
        if len(boxes) >= cfg.pop('split_thr', 10000):
            class_agnostic = False
        name = cfg.pop('type', 'nms')
        kind, options = known.get(name, (None, set())) if isinstance(
            name, str) else (None, set())
        width = {'aligned': 4, 'rotated': 5}.get(kind)
        if nms_cfg is None or cfg.keys() - options or (
                boxes.shape[-1] != width) or not cfg.keys() & {
                    'iou_threshold', 'iou_thr'}:
            return stock(boxes, scores, idxs, nms_cfg, given)
        limit = cfg.get('score_threshold', 0)
        most = cfg.get('max_num', -1)
        keep = multiclass_nms(
            boxes,
            scores,
            cfg.get('iou_threshold', cfg.get('iou_thr')),
            None if class_agnostic else idxs.long(),
            kind=kind,
            valid=scores > limit if limit > 0 else None,
            max_out=most if most > 0 else None,
            offset=cfg.get('offset', 0))
        return torch.cat([boxes[keep], scores[keep, None]], -1), keep

    return wrapper
