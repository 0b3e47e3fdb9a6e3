"""Suppression and rotated overlap under the names of ``mmcv._ext``."""

from torch import Tensor

from .. import box_iou_rotated as _box_iou_rotated
from .. import boxes_overlap_bev, nms3d, nms3d_normal, soft_nms
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
