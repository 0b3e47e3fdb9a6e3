"""IoU of rotated boxes with a gradient, in 2D and 3D.

Definition: mmcv's ``diff_iou_rotated_2d`` and ``diff_iou_rotated_3d``. There
the overlap is a polygon of sorted corners that autograd goes through. Here
its gradient is known in closed form: a border that moves outwards adds as
much area as lies of it in the other box.
"""

import torch
from torch import Tensor

from ._library import define
from .box_iou_rotated import rotated_overlap as _overlap

_CORNERS, _VERTICES = 8, 24


def rotated_overlap_reference(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    return _overlap(boxes1.double(), boxes2.double()).to(boxes1.dtype)


def _clip(start: Tensor, step: Tensor, half: Tensor, low: Tensor,
          high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keep of [low, high] where |start + t * step| <= half; its weight."""
    t1, t2 = (-half - start) / step, (half - start) / step
    still, gap = step.abs() < 1e-12, start.abs() - half
    weight = torch.where(gap.abs() <= half * 1e-12, 0.5, (gap < 0).to(gap))
    return (torch.where(still, weight, 1),
            torch.where(still, low, low.maximum(t1.minimum(t2))),
            torch.where(still, high, high.minimum(t1.maximum(t2))))


def _inside(box: Tensor, x: Tensor, y: Tensor, dx: Tensor, dy: Tensor,
            reach: Tensor) -> tuple[Tensor, Tensor]:
    """Length and first moment of the part of an edge inside a box."""
    weight_x, low, high = _clip(x, dx, box[..., 2] / 2, -reach, reach)
    weight_y, low, high = _clip(y, dy, box[..., 3] / 2, low, high)
    length = weight_x * weight_y * (high - low).clamp(min=0)
    length = torch.where(weight_x * weight_y > 0, length, 0)
    return length, torch.where(length > 0, length * (high + low) / 2, 0)


def _slope(a: Tensor, b: Tensor) -> Tensor:
    """(..., 5), (..., 5) float64 -> (..., 5), of the overlap by ``b``."""
    cos_a, sin_a = a[..., 4].cos(), a[..., 4].sin()
    cos_b, sin_b = b[..., 4].cos(), b[..., 4].sin()
    dx, dy = b[..., 0] - a[..., 0], b[..., 1] - a[..., 1]
    c, s = cos_a * cos_b + sin_a * sin_b, cos_a * sin_b - sin_a * cos_b
    x, y = dx * cos_a + dy * sin_a, dy * cos_a - dx * sin_a
    half_w, half_h = b[..., 2] / 2, b[..., 3] / 2
    wx, wy, hx, hy = half_w * c, half_w * s, -half_h * s, half_h * c
    right, right_moment = _inside(a, x + wx, y + wy, -s, c, half_h)
    left, left_moment = _inside(a, x - wx, y - wy, -s, c, half_h)
    top, top_moment = _inside(a, x + hx, y + hy, c, s, half_w)
    bottom, bottom_moment = _inside(a, x - hx, y - hy, c, s, half_w)
    along, across = right - left, top - bottom
    return torch.stack([
        along * cos_b - across * sin_b, along * sin_b + across * cos_b,
        (right + left) / 2, (top + bottom) / 2,
        top_moment - bottom_moment - right_moment + left_moment
    ], -1)


def rotated_overlap_backward_reference(
        grad: Tensor, boxes1: Tensor,
        boxes2: Tensor) -> tuple[Tensor, Tensor]:
    a, b = boxes1.double(), boxes2.double()
    meet = (_overlap(a, b) > 0)[..., None]
    return tuple(
        torch.where(meet, grad[..., None] * _slope(first, second), 0).to(
            grad.dtype) for first, second in ((b, a), (a, b)))


def sort_vertices_reference(vertices: Tensor, mask: Tensor) -> Tensor:
    points = vertices.double()
    x, y = points.unbind(-1)
    r = x.abs() + y.abs()
    turn = torch.where(y >= 0, 1 - x / r, 3 + x / r)
    turn = torch.where(r > 0, turn, 0).masked_fill(~mask, 5)
    sorted_ = turn.sort(dim=1, stable=True).indices
    tolerance = 1e-6 * r.masked_fill(~mask, 0).amax(1)
    rows = torch.arange(len(points), device=points.device)
    free = ~mask[:, _CORNERS:]
    none = torch.where(free.any(1), free.int().argmax(1) + _CORNERS,
                       _VERTICES - 1)
    order = none[:, None].repeat(1, _CORNERS + 1)
    kept = torch.zeros_like(rows)

    def apart(k: Tensor, other: Tensor) -> Tensor:
        gap = (points[rows, k] - points[rows, other]).abs().sum(-1)
        return ~(gap <= tolerance)

    for k in sorted_.unbind(1):
        last = order[rows, (kept - 1).clamp(min=0)]
        new = mask[rows, k] & (kept < _CORNERS) & (
            (kept == 0) | (apart(k, last) & apart(k, order[:, 0])))
        place = kept.clamp(max=_CORNERS - 1)
        order[rows, place] = torch.where(new, k, order[rows, place])
        kept += new
    few = kept < 3
    order = torch.where(few[:, None], none[:, None], order)
    order[rows, kept] = torch.where(few, none, order[:, 0])
    return order.int()


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients(ctx, grad):
    return _overlap_backward(grad.contiguous(), *ctx.saved_tensors)


_overlap_backward = define(
    'rotated_overlap_backward(Tensor grad, Tensor boxes1, Tensor boxes2)'
    ' -> (Tensor, Tensor)',
    rotated_overlap_backward_reference,
    fake=lambda grad, boxes1, boxes2: (boxes1.new_empty(boxes1.shape),
                                       boxes2.new_empty(boxes2.shape)))
_rotated_overlap = define(
    'rotated_overlap(Tensor boxes1, Tensor boxes2) -> Tensor',
    rotated_overlap_reference,
    fake=lambda boxes1, boxes2: boxes1.new_empty(boxes1.shape[:1]),
    setup_context=_save,
    backward=_gradients)
_sort_vertices = define(
    'sort_vertices(Tensor vertices, Tensor mask) -> Tensor',
    sort_vertices_reference,
    fake=lambda vertices, mask: vertices.new_empty(
        (vertices.shape[0], _CORNERS + 1), dtype=torch.int32))


def _check(box1: Tensor, box2: Tensor, width: int) -> None:
    for name, box in (('box1', box1), ('box2', box2)):
        if box.dim() == 0 or box.shape[-1] != width:
            raise ValueError(f'{name} must have shape (..., {width}), got '
                             f'{tuple(box.shape)}')
        if not box.is_floating_point():
            raise TypeError(f'{name} must be floating point, got {box.dtype}')
    if box1.shape != box2.shape or box1.device != box2.device:
        raise ValueError(
            'box1 and box2 must share shape and device, got '
            f'{tuple(box1.shape)} on {box1.device} and {tuple(box2.shape)} on '
            f'{box2.device}')


def _widen(*boxes: Tensor) -> list[Tensor]:
    """All in float32 or all in float64, with their gradients."""
    dtype = torch.float32
    for box in boxes:
        dtype = torch.promote_types(dtype, box.dtype)
    return [box.to(dtype) for box in boxes]


def _area(box1: Tensor, box2: Tensor) -> Tensor:
    out = _rotated_overlap(box1.reshape(-1, 5), box2.reshape(-1, 5))
    return out.view(box1.shape[:-1])


def _ratio(shared: Tensor, total: Tensor) -> Tensor:
    union = total - shared
    return shared / torch.where(union > 0, union, 1)


def diff_iou_rotated_2d(box1: Tensor, box2: Tensor) -> Tensor:
    """IoU of each rotated box with its counterpart.

    Args:
        box1: (..., 5) floating point; centre x, y, width, height, angle in
            radians that turns x towards y.
        box2: likewise, of the same shape.

    Returns:
        (...) in the dtype of ``box1``; zero where a size is not positive.

    Raises:
        ValueError: on a shape or device mismatch.
        TypeError: on boxes that are not floating point.

    Note:
        Deterministic. Gradient for both boxes, once; where edges coincide it
        is the mean of the slopes on both sides. Half precision is computed in
        float32, the overlap and its gradient in float64.
    """
    _check(box1, box2, 5)
    dtype = box1.dtype
    box1, box2 = _widen(box1, box2)
    total = box1[..., 2] * box1[..., 3] + box2[..., 2] * box2[..., 3]
    return _ratio(_area(box1, box2), total).to(dtype)


def diff_iou_rotated_3d(box1: Tensor, box2: Tensor) -> Tensor:
    """IoU of each 3D box with its counterpart.

    Args:
        box1: (..., 7) floating point; centre x, y, z, sizes dx, dy, dz in
            metres, yaw about z in radians.
        box2: likewise, of the same shape.

    Returns, errors and notes as :func:`diff_iou_rotated_2d`.
    """
    _check(box1, box2, 7)
    dtype = box1.dtype
    box1, box2 = _widen(box1, box2)
    bev = [0, 1, 3, 4, 6]
    half1, half2 = box1[..., 5] / 2, box2[..., 5] / 2
    height = (torch.minimum(box1[..., 2] + half1, box2[..., 2] + half2)
              - torch.maximum(box1[..., 2] - half1, box2[..., 2] - half2))
    shared = _area(box1[..., bev], box2[..., bev]) * height.clamp(min=0)
    total = box1[..., 3:6].prod(-1) + box2[..., 3:6].prod(-1)
    return _ratio(shared, total).to(dtype)


def sort_vertices(vertices: Tensor, mask: Tensor) -> Tensor:
    """Put the corners of overlaps in their order around the origin.

    Args:
        vertices: (..., 24, 2) float32 or float64, relative to a point inside
            of the overlap: the corners of two boxes, then the crossings of
            their edges.
        mask: (..., 24) bool, which of them are corners of the overlap.

    Returns:
        (..., 9) int32 indices: the corners counter-clockwise, each place
        once, the first of them again, then an index in [8, 24) that is not
        valid. Only the latter where fewer than three corners are left.

    Raises:
        ValueError: on a wrong shape, device or dtype.

    Note:
        Deterministic, equal on all devices. No gradient.
    """
    if vertices.shape[-2:] != (_VERTICES, 2) or (
            mask.shape != vertices.shape[:-1]) or mask.dtype != torch.bool:
        raise ValueError(
            'vertices and mask must have shapes (..., 24, 2) and (..., 24) '
            f'bool, got {tuple(vertices.shape)} and {tuple(mask.shape)} '
            f'{mask.dtype}')
    if vertices.device != mask.device:
        raise ValueError('vertices and mask must share a device, got '
                         f'{vertices.device} and {mask.device}')
    vertices = _widen(vertices.detach())[0]
    out = _sort_vertices(
        vertices.reshape(-1, _VERTICES, 2), mask.reshape(-1, _VERTICES))
    return out.view(*mask.shape[:-1], _CORNERS + 1)
