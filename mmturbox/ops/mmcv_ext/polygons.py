"""Quadrilaterals and point sets under the names of ``mmcv._ext``.

Models of rotated objects in images call these, no driving model does: they
are plain PyTorch in float64, on whatever device the tensors are. An overlap
is the integral along both outlines, as far as each lies in the other; an
edge that both share counts half for each.
"""

import torch
from torch import Tensor

from .._boxes import greedy_keep, score_order
from ._provided import provides

_CLOSE = 1e-9  # relative to the size of a polygon


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _signed_area(polygons: Tensor) -> Tensor:
    """(..., V, 2) -> (...), positive where counter-clockwise."""
    return _cross(polygons, polygons.roll(-1, -2)).sum(-1) / 2


def _outlines(points: Tensor) -> Tensor:
    """(N, 2 V) -> (N, V, 2) float64, counter-clockwise."""
    polygons = points.double().view(-1, points.shape[1] // 2, 2)
    backwards = _signed_area(polygons - polygons[:, :1]) < 0
    return torch.where(backwards[:, None, None], polygons.flip(1), polygons)


def _hulls(points: Tensor) -> Tensor:
    """(N, P, 2) -> (N, P, 2), the corners of each hull counter-clockwise,
    then the last one again and again."""
    rows = []
    for row in points.detach().tolist():
        ranked = sorted(range(len(row)), key=lambda i: row[i])
        chains = []
        for order in (ranked, ranked[::-1]):
            chain = []
            for i in order:
                while len(chain) > 1:
                    (x0, y0), (x1, y1) = row[chain[-2]], row[chain[-1]]
                    x, y = row[i]
                    if (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) > 0:
                        break
                    chain.pop()
                chain.append(i)
            chains += chain[:-1]
        chains = chains or ranked[:1]
        rows.append(chains + chains[-1:] * (len(row) - len(chains)))
    index = torch.tensor(rows, device=points.device).view(points.shape[:2])
    return points.gather(1, index[..., None].expand_as(points))


def _half_overlap(a: Tensor, b: Tensor) -> Tensor:
    """The integral along the part of outline ``a`` inside of ``b``."""
    start, step = a.unsqueeze(-2), (a.roll(-1, -2) - a).unsqueeze(-2)
    corner, edge = b.unsqueeze(-3), (b.roll(-1, -2) - b).unsqueeze(-3)
    gap, slope = _cross(edge, start - corner), _cross(edge, step)
    length, reach = edge.norm(dim=-1), step.norm(dim=-1)
    still = slope.abs() <= _CLOSE * length * reach
    size = b.detach().abs().amax((-1, -2))[..., None, None]
    weight = torch.where(gap.abs() <= _CLOSE * length * size, 0.5,
                         (gap > 0).to(gap))
    weight = torch.where(still & (length > 0), weight, 1).prod(-1)
    at = -gap / torch.where(still, 1, slope)
    low = torch.where(~still & (slope > 0), at, 0).amax(-1).clamp(min=0)
    high = torch.where(~still & (slope < 0), at, 1).amin(-1).clamp(max=1)
    inside = weight * (high - low).clamp(min=0)
    return (inside * _cross(start, step).squeeze(-1)).sum(-1) / 2


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    """(..., V, 2), (..., W, 2), broadcast -> (...) shared area."""
    middle = b.detach().mean(-2, keepdim=True)
    a, b = a - middle, b - middle
    shared = (_half_overlap(a, b) + _half_overlap(b, a)).clamp(min=0)
    solid = (_signed_area(a) > 0) & (_signed_area(b) > 0)
    return torch.where(solid, shared, 0)


def _iou(a: Tensor, b: Tensor, over_first: bool = False) -> Tensor:
    shared, base = _overlap(a, b), _signed_area(a)
    if not over_first:
        base = base + _signed_area(b) - shared
    return torch.where(shared > 0, shared / base, 0)


@provides
def box_iou_quadri(boxes1: Tensor, boxes2: Tensor, ious: Tensor,
                   mode_flag: int, aligned: bool) -> None:
    """Fill ``ious``: (N,) if aligned, else (N * M,).

    Exact for every convex quadrilateral; mmcv takes them for parallelograms
    when it looks for enclosed corners.
    """
    a, b = _outlines(boxes1), _outlines(boxes2)
    if not aligned:
        a, b = a[:, None], b[None]
    ious.copy_(_iou(a, b, over_first=mode_flag == 1).view_as(ious))


@provides
def nms_quadri(dets: Tensor, scores: Tensor, order: Tensor,
               dets_sorted: Tensor, iou_threshold: float,
               multi_label: bool) -> Tensor:
    """``order`` comes from an unstable sort: not used. Labels are a ninth
    column of ``dets``; as in mmcv they do not matter."""
    boxes = _outlines(dets[:, :8])
    return greedy_keep(
        score_order(scores),
        lambda i, rest: _iou(boxes[i], boxes[rest]) > iou_threshold)


@provides
def convex_iou(pointsets: Tensor, polygons: Tensor, ious: Tensor) -> None:
    """Fill ``ious`` (N, K) of hulls of nine points with quadrilaterals."""
    hulls = _hulls(pointsets.double().view(-1, 9, 2))
    ious.copy_(_iou(hulls[:, None], _outlines(polygons)[None]))


@provides
def convex_giou(pointsets: Tensor, polygons: Tensor, output: Tensor) -> None:
    """Fill ``output`` (N, 19): the gradient by the points, then the GIoU.

    Where edges coincide the gradient is the mean of the slopes on both sides;
    mmcv's depends on the order in which it clips.
    """
    with torch.enable_grad():
        points = pointsets.detach().double().requires_grad_()
        hulls, other = _hulls(points.view(-1, 9, 2)), _outlines(polygons)
        shared = _overlap(hulls, other)
        union = _signed_area(hulls) + _signed_area(other) - shared
        outer = _signed_area(
            _hulls(torch.cat([points.view(-1, 9, 2), other], 1)))
        giou = shared / union - (outer - union) / outer
        grad, = torch.autograd.grad(giou.sum(), points)
    output.copy_(torch.cat([grad, giou.detach()[:, None]], 1))


@provides
def min_area_polygons(pointsets: Tensor, polygons: Tensor) -> None:
    """Fill ``polygons`` (N, 8): the smallest rectangle round nine points.

    One of its sides is a side of their hull; of equal rectangles the first
    is taken.
    """
    points = pointsets.double().view(-1, 9, 2)
    hulls = _hulls(points)
    along = hulls.roll(-1, 1) - hulls
    # In the first quadrant: the four sides of a rectangle are one direction.
    x, y = along.unbind(-1)
    swap = (x * y < 0) | (x == 0)
    along = torch.where(swap[..., None], torch.stack([y, -x], -1), along)
    length = along.norm(dim=-1, keepdim=True)
    u = torch.where(length > 0, along.abs() / length,
                    along.new_tensor([1., 0.]))
    v = torch.stack([-u[..., 1], u[..., 0]], -1)
    on_u, on_v = ((points[:, None] * axis[:, :, None]).sum(-1)
                  for axis in (u, v))
    u0, u1, v0, v1 = on_u.amin(2), on_u.amax(2), on_v.amin(2), on_v.amax(2)
    area = (u1 - u0) * (v1 - v0)
    least = area.amin(1, keepdim=True) * (1 + _CLOSE)
    best = (area <= least).int().argmax(1)
    rows = torch.arange(len(points), device=points.device)
    u0, u1, v0, v1, u, v = (t[rows, best] for t in (u0, u1, v0, v1, u, v))
    corners = [a[:, None] * u + b[:, None] * v
               for a, b in ((u1, v0), (u0, v0), (u0, v1), (u1, v1))]
    polygons.copy_(torch.cat(corners, 1))


@provides
def points_in_polygons_forward(points: Tensor, polygons: Tensor,
                               output: Tensor) -> None:
    """Fill ``output`` (B, M): 1 inside, 0 outside and on the outline."""
    points = points.double()[:, None, None]
    start = polygons.double().view(1, -1, 4, 2)
    edge = start.roll(-1, 2) - start
    offset = points - start
    side = _cross(edge, offset)
    y0, y1 = offset[..., 1], offset[..., 1] - edge[..., 1]
    crosses = ((y0 < 0) != (y1 < 0)) & ((side > 0) == (edge[..., 1] > 0))
    on_edge = (side == 0) & ((offset * (offset - edge)).sum(-1) <= 0)
    inside = (crosses.sum(-1) % 2 == 1) & ~on_edge.any(-1)
    output.copy_(inside)
