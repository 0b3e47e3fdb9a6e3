"""RoI-point pooling (PointRCNN, arXiv:1812.04244).

Definition: mmcv's ``roipoint_pool3d``; beyond it, points and features get
gradients. Which points are inside is as in ``points_in_boxes``: a point with
a NaN is in no box.
"""

import torch
from torch import Tensor

from ._library import define
from ._points import check_alike, check_clouds, compute
from .ball_query import first_hits
from .points_in_boxes import points_in_boxes_all_reference


def roipoint_pool3d_reference(
        points: Tensor, features: Tensor, boxes: Tensor,
        num_samples: int) -> tuple[Tensor, Tensor, Tensor]:
    inside = points_in_boxes_all_reference(compute(points), compute(boxes))
    inside = inside.bool().transpose(1, 2)
    number = inside.sum(-1, keepdim=True)
    index = torch.arange(num_samples, device=points.device)
    index = first_hits(inside, num_samples).gather(
        2, index % number.clamp(1, max(num_samples, 1)))
    empty = number == 0
    index = torch.where(empty, -1, index)
    rows = torch.cat((points, features), 2)
    if rows.shape[1] == 0:
        rows = rows.new_zeros((len(rows), 1, rows.shape[2]))
    batch = torch.arange(len(rows), device=rows.device)[:, None, None]
    pooled = torch.where(empty[..., None], 0, rows[batch, index.clamp(min=0)])
    return pooled, empty.squeeze(2).int(), index.int()


def _fake(points, features, boxes, num_samples):
    shape = (*boxes.shape[:2], num_samples)
    return (features.new_empty((*shape, 3 + features.shape[2])),
            points.new_empty(shape[:2], dtype=torch.int32),
            points.new_empty(shape, dtype=torch.int32))


def _setup_context(ctx, inputs, output):
    ctx.num_points = inputs[0].shape[1]
    ctx.save_for_backward(output[2])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, grad, *unused):
    index, = ctx.saved_tensors
    batch, width = len(index), grad.shape[3]
    # A place more a sample takes what empty boxes bring.
    index = torch.where(index < 0, ctx.num_points, index).flatten(1)
    step = torch.arange(batch, device=index.device) * (ctx.num_points + 1)
    rows = compute(grad).new_zeros((batch * (ctx.num_points + 1), width))
    rows = rows.index_add(0, (index + step[:, None]).flatten(),
                          compute(grad).reshape(-1, width))
    rows = rows.view(batch, -1, width)[:, :-1].to(grad.dtype)
    return rows[..., :3], rows[..., 3:], None, None


_pool = define(
    'roipoint_pool3d(Tensor points, Tensor features, Tensor boxes, '
    'int num_samples) -> (Tensor, Tensor, Tensor)',
    roipoint_pool3d_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)


def roipoint_pool3d(points: Tensor,
                    point_features: Tensor,
                    boxes3d: Tensor,
                    num_sampled_points: int = 512) -> tuple[Tensor, Tensor]:
    """Collect the points in boxes; signature as mmcv's.

    Args:
        points: (B, N, 3) floating; x, y, z in metres.
        point_features: (B, N, C) of the same dtype.
        boxes3d: (B, M, 7) of the same dtype; bottom centre x, y, z, sizes
            dx, dy, dz in metres, yaw about z in radians.
        num_sampled_points: the first so many points in a box; fewer are
            repeated from the first on.

    Returns:
        (B, M, num_sampled_points, 3 + C) coordinates and features, zero for
        a box without points, and (B, M) int32, 1 for such a box.

    Raises:
        ValueError: on a wrong shape, dtype or device.

    Note:
        The result is deterministic. Gradients of points and features are
        summed in float32 or wider, on CUDA in an order that varies.
    """
    check_clouds(points=points)
    if point_features.dim() != 3 or (
            point_features.shape[:2] != points.shape[:2]):
        raise ValueError(
            f'point_features must have shape {tuple(points.shape[:2])} + '
            f'(C,), got {tuple(point_features.shape)}')
    if boxes3d.dim() != 3 or boxes3d.shape[2] != 7 or (
            len(boxes3d) != len(points)):
        raise ValueError(f'boxes3d must have shape ({len(points)}, M, 7), '
                         f'got {tuple(boxes3d.shape)}')
    if num_sampled_points < 0:
        raise ValueError('num_sampled_points must not be negative, got '
                         f'{num_sampled_points}')
    check_alike(
        points=points, point_features=point_features, boxes3d=boxes3d)
    return _pool(points, point_features, boxes3d, num_sampled_points)[:2]
