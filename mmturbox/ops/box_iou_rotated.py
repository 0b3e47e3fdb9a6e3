"""Overlap of rotated rectangles.

Definition: mmcv's ``box_iou_rotated``. The method is another one, see
``ops/csrc/common/box_iou_rotated.h``: the outline of the second rectangle,
seen from the first, is projected onto it, and what it then encloses is the
overlap. This has no tolerances and is a continuous function of the boxes.
"""

import torch
from torch import Tensor

from ._boxes import check_boxes, widen
from ._library import define

MODES = {'iou': 0, 'iof': 1, 'area': 2}
"""Name -> number by which mmcv (0, 1) and the operator know the mode."""
_PAIRS_AT_ONCE = 1 << 20


def _clamp(value: Tensor, limit: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(value, -limit), limit)


def _clamped_mean(a: Tensor, b: Tensor, half: Tensor) -> Tensor:
    """Mean of ``_clamp(x, half)`` while x runs evenly from a to b."""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    start, stop = _clamp(low, half), _clamp(high, half)
    below = (torch.minimum(high, -half) - low).clamp(min=0)
    above = (high - torch.maximum(low, half)).clamp(min=0)
    mean = (half * (above - below)
            + (stop - start) * (start + stop) / 2) / (high - low)
    return torch.where(high > low, mean, start)


def _edge_area(x1: Tensor, y1: Tensor, x2: Tensor, y2: Tensor, half_w: Tensor,
               half_h: Tensor) -> Tensor:
    """Integral of the clamped x over the clamped y along the edge 1 -> 2."""
    start, stop = _clamp(y1, half_h), _clamp(y2, half_h)
    slope = (x2 - x1) / (y2 - y1)
    area = (stop - start) * _clamped_mean(x1 + (start - y1) * slope,
                                          x2 + (stop - y2) * slope, half_w)
    return torch.where(start == stop, 0, area)


def rotated_overlap(a: Tensor, b: Tensor) -> Tensor:
    """(..., 5), (..., 5) float64, broadcast -> (...) shared area."""
    half_aw, half_ah = a[..., 2] / 2, a[..., 3] / 2
    half_bw, half_bh = b[..., 2] / 2, b[..., 3] / 2
    cos_a, sin_a = a[..., 4].cos(), a[..., 4].sin()
    cos_b, sin_b = b[..., 4].cos(), b[..., 4].sin()
    dx, dy = b[..., 0] - a[..., 0], b[..., 1] - a[..., 1]
    c = cos_a * cos_b + sin_a * sin_b
    s = cos_a * sin_b - sin_a * cos_b
    # The centre of b seen from a, and of a seen from b (sign aside).
    x, y = dx * cos_a + dy * sin_a, dy * cos_a - dx * sin_a
    back_x, back_y = dx * cos_b + dy * sin_b, dy * cos_b - dx * sin_b
    abs_c, abs_s = c.abs(), s.abs()
    meet = ((half_aw > 0) & (half_ah > 0) & (half_bw > 0) & (half_bh > 0)
            & (back_x.abs() < half_bw + half_aw * abs_c + half_ah * abs_s)
            & (back_y.abs() < half_bh + half_aw * abs_s + half_ah * abs_c)
            & (x.abs() < half_aw + half_bw * abs_c + half_bh * abs_s)
            & (y.abs() < half_ah + half_bw * abs_s + half_bh * abs_c))
    ux, uy, vx, vy = half_bw * c, half_bw * s, -half_bh * s, half_bh * c
    xs = (x + ux + vx, x - ux + vx, x - ux - vx, x + ux - vx)
    ys = (y + uy + vy, y - uy + vy, y - uy - vy, y + uy - vy)
    area = sum(
        _edge_area(xs[i - 1], ys[i - 1], xs[i], ys[i], half_aw, half_ah)
        for i in range(4))
    most = torch.minimum(4 * half_aw * half_ah, 4 * half_bw * half_bh)
    return torch.where(meet, torch.minimum(area.clamp(min=0), most), 0)


def rotated_iou(a: Tensor, b: Tensor, mode: int) -> Tensor:
    """(..., 5), (..., 5), broadcast -> (...) in the dtype of ``a``.

    Computed in float64, as the native kernel does.
    """
    dtype, a, b = a.dtype, a.double(), b.double()
    overlap = rotated_overlap(a, b)
    if mode == MODES['area']:
        return overlap.to(dtype)
    base = a[..., 2] * a[..., 3]
    if mode == MODES['iou']:
        base = base + b[..., 2] * b[..., 3] - overlap
    return torch.where(overlap > 0, overlap / base, 0).to(dtype)


def box_iou_rotated_reference(boxes1: Tensor, boxes2: Tensor, mode: int,
                              aligned: bool) -> Tensor:
    if aligned:
        return rotated_iou(boxes1, boxes2, mode)
    rows = max(1, _PAIRS_AT_ONCE // max(1, boxes2.shape[0]))
    return torch.cat([
        rotated_iou(part[:, None], boxes2[None], mode)
        for part in boxes1.split(rows)
    ])


def _fake(boxes1, boxes2, mode, aligned):
    if aligned:
        return boxes1.new_empty(boxes1.shape[:1])
    return boxes1.new_empty((boxes1.shape[0], boxes2.shape[0]))


_box_iou_rotated = define(
    'box_iou_rotated(Tensor boxes1, Tensor boxes2, int mode, bool aligned)'
    ' -> Tensor', box_iou_rotated_reference, _fake)


def box_iou_rotated(boxes1: Tensor,
                    boxes2: Tensor,
                    mode: str = 'iou',
                    aligned: bool = False) -> Tensor:
    """IoU of rotated boxes, of all pairs or of each with its counterpart.

    Args:
        boxes1: (N, 5) floating point; centre x, y, width, height, angle in
            radians. The angle turns the x axis towards the y axis: that is
            clockwise in an image, counter-clockwise in a LiDAR's BEV.
        boxes2: (M, 5) likewise, on the same device.
        mode: 'iou', 'iof' (over the area of box 1) or 'area' (the shared
            area itself).
        aligned: compare box i with box i only; then N must equal M.

    Returns:
        (N, M), or (N,) if aligned, in the dtype of ``boxes1``. Zero where a
        width or height is not positive or a value is NaN.

    Raises:
        ValueError: on a wrong shape, device or mode.
        TypeError: on boxes that are not floating point.

    Note:
        Deterministic. No gradient. Computed in float64 for every dtype.
    """
    check_boxes('boxes1', boxes1, 5)
    check_boxes('boxes2', boxes2, 5)
    if boxes1.device != boxes2.device:
        raise ValueError('boxes1 and boxes2 must share a device, got '
                         f'{boxes1.device} and {boxes2.device}')
    if mode not in MODES:
        raise ValueError(f'mode must be one of {list(MODES)}, got {mode!r}')
    if aligned and boxes1.shape != boxes2.shape:
        raise ValueError('aligned boxes must be equal in number, got '
                         f'{boxes1.shape[0]} and {boxes2.shape[0]}')
    out = _box_iou_rotated(*widen(boxes1, boxes2), MODES[mode], aligned)
    return out.to(boxes1.dtype)
