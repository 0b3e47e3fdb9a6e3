"""Deformable aggregation of Sparse4D (arXiv:2211.10581, arXiv:2311.11722).

Definition: upstream's CUDA operator. A point counts in a camera where it is
strictly inside of the image; its features are read bilinearly from each level
with zeros around the map, weighted by group of channels and summed over
points, cameras and levels. The split form takes the two terms of which the
logits of Sparse4D's weights consist, an anchor's and a camera's, so that
weights are made only where a point is visible.
"""

import torch
from torch import Tensor

from ._attention import Corners, compute
from ._library import define


def _visible(locations: Tensor) -> Tensor:
    return ((locations > 0) & (locations < 1)).all(-1)


def _reads(feats: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor):
    """Yield camera, level, corners of (B, N, K) reads and (B, 1, 1)."""
    shapes = shapes.tolist()
    sample = torch.arange(len(feats), device=feats.device)[:, None, None]
    for camera, levels in enumerate(shapes):
        at = locations[:, :, :, camera]
        at = torch.where(_visible(at)[..., None], at, float('nan'))
        for level, (height, width) in enumerate(levels):
            corners = Corners(at[..., 0], at[..., 1], height, width)
            corners.cells += starts[camera, level]
            yield camera, level, corners, sample


def deformable_aggregation_reference(feats: Tensor, shapes: Tensor,
                                     starts: Tensor, locations: Tensor,
                                     weights: Tensor) -> Tensor:
    maps = compute(feats)
    weights = weights.to(maps.dtype)
    groups = weights.shape[-1]
    out = maps.new_zeros(*locations.shape[:2], groups,
                         feats.shape[2] // groups)
    for camera, level, corners, sample in _reads(
            feats, shapes, starts, locations.to(maps.dtype)):
        weight = weights[:, :, :, camera, level]
        for k in range(4):
            read = maps[sample, corners.cells[k]].unflatten(3, out.shape[2:])
            part = corners.weights[k][..., None] * weight
            out += torch.where(part[..., None] != 0, read * part[..., None],
                               0.).sum(2)
    return out.flatten(2).to(feats.dtype)


def deformable_aggregation_backward_reference(
        grad: Tensor, feats: Tensor, shapes: Tensor, starts: Tensor,
        locations: Tensor,
        weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    maps = compute(feats)
    used = weights.to(maps.dtype)
    groups = used.shape[-1]
    # (B, N, 1, G, C / G)
    above = grad.to(maps.dtype).unflatten(2, (groups, -1)).unsqueeze(2)
    grad_feats = maps.new_zeros(maps.shape)
    grad_at = maps.new_zeros(locations.shape)
    grad_weights = used.new_zeros(used.shape)
    for camera, level, corners, sample in _reads(
            feats, shapes, starts, locations.to(maps.dtype)):
        weight = used[:, :, :, camera, level]
        for k in range(4):
            cells = corners.cells[k]
            here = (corners.weights[k] != 0) | (corners.by_x[k] != 0) | (
                corners.by_y[k] != 0)
            read = maps[sample, cells].unflatten(3, above.shape[3:])
            dot = torch.where(here[..., None], (read * above).sum(4), 0.)
            grad_weights[:, :, :, camera, level] += (
                corners.weights[k][..., None] * dot)
            slope = (dot * weight).sum(3)
            grad_at[:, :, :, camera, 0] += corners.by_x[k] * slope
            grad_at[:, :, :, camera, 1] += corners.by_y[k] * slope
            part = corners.weights[k][..., None] * weight
            grad_feats.index_put_((sample.expand_as(cells), cells),
                                  (part[..., None] * above).flatten(3),
                                  accumulate=True)
    return (grad_feats.to(feats.dtype), grad_at.to(locations.dtype),
            grad_weights.to(weights.dtype))


def _split_weights(locations: Tensor, anchors: Tensor, cameras: Tensor,
                   norm: Tensor, scale: Tensor | None) -> Tensor:
    """(B, N, K, M, L, G); zero where a point is not visible."""
    logits = (anchors[:, :, None] + cameras[:, None] -
              norm[:, :, None, None, None])
    weights = logits.permute(0, 1, 4, 2, 3, 5).exp()
    visible = _visible(locations)[..., None, None]
    weights = torch.where(visible, weights, 0.)
    return weights if scale is None else weights * scale[..., None, None]


def deformable_aggregation_split_reference(
        feats: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor,
        anchors: Tensor, cameras: Tensor, norm: Tensor,
        scale: Tensor | None) -> Tensor:
    dtype = compute(feats).dtype
    rest = [None if t is None else t.to(dtype)
            for t in (locations, anchors, cameras, norm, scale)]
    return deformable_aggregation_reference(feats, shapes, starts, locations,
                                            _split_weights(*rest))


def deformable_aggregation_split_backward_reference(
        grad: Tensor, feats: Tensor, shapes: Tensor, starts: Tensor,
        locations: Tensor, anchors: Tensor, cameras: Tensor, norm: Tensor,
        scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dtype = compute(feats).dtype
    weights = _split_weights(*[None if t is None else t.to(dtype) for t in (
        locations, anchors, cameras, norm, scale)])
    found = deformable_aggregation_backward_reference(
        grad, feats, shapes, starts, locations, weights)
    # (B, N, K, M, L, G)
    by_logit = found[2] * weights
    return (*found[:2],
            by_logit.sum(3).transpose(2, 3).to(anchors.dtype).contiguous(),
            by_logit.sum(1).permute(0, 2, 3, 1, 4).to(
                cameras.dtype).contiguous(),
            -by_logit.sum((2, 3, 4)).to(norm.dtype))


def _like(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.new_empty(t.shape) for t in tensors)


def _fake(feats, shapes, starts, locations, *rest):
    return feats.new_empty(*locations.shape[:2], feats.shape[2])


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    found = deformable_aggregation_backward(grad, *ctx.saved_tensors)
    return (found[0], None, None, *found[1:])


def _split_backward(ctx, grad):
    found = deformable_aggregation_split_backward(grad, *ctx.saved_tensors)
    return (found[0], None, None, *found[1:], None)


_MAPS = 'Tensor feats, Tensor shapes, Tensor starts, Tensor locations'
_SPLIT = f'{_MAPS}, Tensor anchors, Tensor cameras, Tensor norm, Tensor? scale'
deformable_aggregation_backward = define(
    f'deformable_aggregation_backward(Tensor grad, {_MAPS}, Tensor weights) '
    '-> (Tensor, Tensor, Tensor)',
    deformable_aggregation_backward_reference,
    fake=lambda grad, feats, shapes, starts, *rest: _like(feats, *rest))
deformable_aggregation_forward = define(
    f'deformable_aggregation({_MAPS}, Tensor weights) -> Tensor',
    deformable_aggregation_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)
deformable_aggregation_split_backward = define(
    f'deformable_aggregation_split_backward(Tensor grad, {_SPLIT}) '
    '-> (Tensor, Tensor, Tensor, Tensor, Tensor)',
    deformable_aggregation_split_backward_reference,
    fake=lambda grad, feats, shapes, starts, *rest: _like(feats, *rest[:4]))
deformable_aggregation_split_forward = define(
    f'deformable_aggregation_split({_SPLIT}) -> Tensor',
    deformable_aggregation_split_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_split_backward)


def _check(feats: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor,
           **others: tuple[Tensor, tuple[int, ...]]) -> None:
    if feats.dim() != 3 or not feats.is_floating_point():
        raise ValueError('feats must be floating of shape (B, T, C), got '
                         f'{tuple(feats.shape)} {feats.dtype}')
    if locations.dim() != 5 or locations.shape[-1] != 2 or len(
            locations) != len(feats):
        raise ValueError('locations must have shape (B, N, K, M, 2) with B '
                         f'of {len(feats)}, got {tuple(locations.shape)}')
    maps = (locations.shape[3], *starts.shape[1:2])
    for name, tensor, shape in (('shapes', shapes, (*maps, 2)),
                                ('starts', starts, maps)):
        if tensor.shape != shape or tensor.dtype != torch.int64:
            raise ValueError(f'{name} must be int64 of shape {shape}, got '
                             f'{tuple(tensor.shape)} {tensor.dtype}')
    for name, (tensor, shape) in others.items():
        if tensor.shape != shape or not tensor.is_floating_point():
            raise ValueError(f'{name} must be floating of shape {shape}, '
                             f'got {tuple(tensor.shape)} {tensor.dtype}')
        if shape[-1] and feats.shape[2] % shape[-1] and name != 'scale':
            raise ValueError(f'{feats.shape[2]} channels do not divide into '
                             f'{shape[-1]} groups')
    for name, tensor in dict(
            shapes=shapes, starts=starts, locations=locations,
            **{k: v[0] for k, v in others.items()}).items():
        if tensor.device != feats.device:
            raise ValueError(f'{name} must be on the device of feats, got '
                             f'{tensor.device} and {feats.device}')


def deformable_aggregation(feats: Tensor, shapes: Tensor, starts: Tensor,
                           locations: Tensor, weights: Tensor) -> Tensor:
    """Weighted sum of an anchor's points over cameras and levels.

    Args:
        feats: (B, T, C) floating; the cells of all cameras' maps.
        shapes: (M, L, 2) int64 height and width of each map.
        starts: (M, L) int64 first cell of each map in T.
        locations: (B, N, K, M, 2) x, y as a share of the image's width and
            height; a point counts where 0 < x < 1 and 0 < y < 1.
        weights: (B, N, K, M, L, G); group g has the channels from
            g * C / G on.

    Returns:
        (B, N, C) in the dtype of ``feats``.

    Raises:
        ValueError: on a shape, dtype or device mismatch.
        RuntimeError: on maps that reach out of T (CPU; on CUDA such cells
            read as zero).

    Note:
        Half precision is summed in float32. Nothing is read back to the
        host. Deterministic, except for the gradient of ``feats`` on CUDA,
        where float32 atomics add in any order.
    """
    lead = locations.shape[:4]
    _check(feats, shapes, starts, locations,
           weights=(weights, (*lead, *starts.shape[1:2],
                              *weights.shape[-1:])))
    return deformable_aggregation_forward(feats, shapes, starts, locations,
                                          weights)


def deformable_aggregation_per_point(feats: Tensor, shapes: Tensor,
                                     starts: Tensor, locations: Tensor,
                                     weights: Tensor) -> Tensor:
    """The form of Sparse4D v2: points are not summed, maps are alike.

    Args:
        feats: (B, M, T, C) floating; the cells of one camera's maps.
        shapes: (L, 2) int64 height and width of each level.
        starts: (L,) int64 first cell of each level in T.
        locations: (B, N, M, 2), N points in all.
        weights: (B, N, M, L, G).

    Returns:
        (B, N, C).

    Note:
        As :func:`deformable_aggregation`, errors too.
    """
    if feats.dim() != 4 or shapes.dim() != 2 or starts.dim() != 1:
        raise ValueError(
            'feats, shapes and starts must have shapes (B, M, T, C), (L, 2) '
            f'and (L,), got {tuple(feats.shape)}, {tuple(shapes.shape)} and '
            f'{tuple(starts.shape)}')
    cameras, cells = feats.shape[1:3]
    camera = torch.arange(cameras, device=starts.device)[:, None]
    return deformable_aggregation(
        feats.flatten(1, 2), shapes.expand(cameras, -1, -1),
        camera * cells + starts, locations.unsqueeze(2), weights.unsqueeze(2))


def deformable_aggregation_split(feats: Tensor,
                                 shapes: Tensor,
                                 starts: Tensor,
                                 locations: Tensor,
                                 anchor_logits: Tensor,
                                 camera_logits: Tensor,
                                 scale: Tensor | None = None) -> Tensor:
    """Deformable aggregation whose weights are a softmax of split logits.

    The weight of a read is the softmax of ``anchor_logits + camera_logits``
    over cameras, levels and points; it is made where the point is visible
    and nowhere else.

    Args:
        feats, shapes, starts, locations: as in
            :func:`deformable_aggregation`.
        anchor_logits: (B, N, L, K, G), those of anchors.
        camera_logits: (B, M, L, K, G), those of cameras.
        scale: (B, N, K, M) factors of the weights, such as dropout makes of
            ones; no gradient.

    Returns:
        (B, N, C) in the dtype of ``feats``.

    Note:
        As :func:`deformable_aggregation`, errors too. On CUDA the gradient
        of ``camera_logits`` adds in any order as well.
    """
    batch, anchors, points, cameras = locations.shape[:4]
    tail = (*starts.shape[1:2], points, *anchor_logits.shape[-1:])
    others = dict(
        anchor_logits=(anchor_logits, (batch, anchors, *tail)),
        camera_logits=(camera_logits, (batch, cameras, *tail)))
    if scale is not None:
        others['scale'] = (scale, (batch, anchors, points, cameras))
    _check(feats, shapes, starts, locations, **others)
    anchor_logits, camera_logits = map(compute,
                                       (anchor_logits, camera_logits))
    per_point = anchor_logits + camera_logits.logsumexp(1).unsqueeze(1)
    return deformable_aggregation_split_forward(
        feats, shapes, starts, locations, anchor_logits, camera_logits,
        per_point.logsumexp((2, 3)), scale)
