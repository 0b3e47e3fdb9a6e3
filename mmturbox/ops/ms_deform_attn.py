"""Multi-scale deformable attention (arXiv:2010.04159).

Definition: mmcv's ``multi_scale_deformable_attn_pytorch``. A sample at a
location that is NaN or infinite is zero. The operator takes a list of hits
(a row and the image that it reads), of which a batch of images with equally
many queries is a special case; see ``ms_deform_attn_ragged.py``.
"""

import torch
from torch import Tensor

from ._attention import (
    Corners,
    check_maps,
    check_samples,
    compute,
    images_of,
    per_row,
    rows_of,
)
from ._library import define


def _read(maps: Tensor, image: Tensor, cells: Tensor) -> Tensor:
    """(I, S, H, C) at (T,) images and (T, H, P) cells: (T, H, P, C)."""
    head = torch.arange(maps.shape[2], device=maps.device)
    return maps[image[:, None, None], cells, head[:, None]]


def ms_deform_attn_reference(value: Tensor, shapes: Tensor, starts: Tensor,
                             locations: Tensor, weights: Tensor,
                             images: Tensor | None, offsets: Tensor | None,
                             softmax: bool) -> Tensor:
    maps = compute(value)
    x, y = locations.to(maps.dtype).unbind(-1)
    weights = weights.to(maps.dtype)
    if softmax:
        weights = weights.flatten(2).softmax(2).view(weights.shape)
    image = images_of(value, len(x), images)
    row, share, num_rows = rows_of(len(x), image, offsets)
    image = torch.where(share > 0, image, 0)
    out = maps.new_zeros(*x.shape[:2], value.shape[3])
    for level, (height, width) in enumerate(shapes.tolist()):
        corners = Corners(x[:, :, level], y[:, :, level], height, width)
        start = starts[level]
        for cells, weight in zip(corners.cells, corners.weights,
                                 strict=True):
            weight = (weight * weights[:, :, level])[..., None]
            read = _read(maps, image, cells + start)
            out += torch.where(weight != 0, read * weight, 0.).sum(2)
    if offsets is not None:
        out = per_row(out, row, share, num_rows)
    return out.flatten(1).to(value.dtype)


def ms_deform_attn_backward_reference(
        grad: Tensor, value: Tensor, shapes: Tensor, starts: Tensor,
        locations: Tensor, weights: Tensor, images: Tensor | None,
        offsets: Tensor | None,
        softmax: bool) -> tuple[Tensor, Tensor, Tensor]:
    maps = compute(value)
    x, y = locations.to(maps.dtype).unbind(-1)
    used = weights.to(maps.dtype)
    if softmax:
        used = used.flatten(2).softmax(2).view(weights.shape)
    image = images_of(value, len(x), images)
    row, share, num_rows = rows_of(len(x), image, offsets)
    image = torch.where(share > 0, image, 0)
    # What stands behind the last hit may hold anything.
    used = torch.where((share > 0).view(-1, 1, 1, 1), used, 0.)
    # (T, H, 1, C)
    above = grad.to(maps.dtype).view(num_rows, *value.shape[2:])
    above = torch.where(
        (share > 0)[:, None, None],
        above[row.clamp(max=max(num_rows - 1, 0))] *
        share.to(maps.dtype)[:, None, None], 0.).unsqueeze(2)
    grad_value = maps.new_zeros(maps.shape)
    grad_weights, grad_x, grad_y = maps.new_zeros(3, *x.shape)
    head = torch.arange(value.shape[2], device=value.device)[:, None]
    for level, (height, width) in enumerate(shapes.tolist()):
        corners = Corners(x[:, :, level], y[:, :, level], height, width)
        weight = used[:, :, level]
        for k in range(4):
            cells = corners.cells[k] + starts[level]
            dot = (_read(maps, image, cells) * above).sum(3)
            here = corners.weights[k] != 0
            here |= (corners.by_x[k] != 0) | (corners.by_y[k] != 0)
            dot = torch.where(here, dot, 0.)
            grad_weights[:, :, level] += corners.weights[k] * dot
            grad_x[:, :, level] += corners.by_x[k] * dot * weight
            grad_y[:, :, level] += corners.by_y[k] * dot * weight
            grad_value.index_put_(
                (image[:, None, None].expand_as(cells), cells,
                 head.expand_as(cells)),
                (weight * corners.weights[k])[..., None] * above,
                accumulate=True)
    if softmax:
        inner = (grad_weights * used).sum((2, 3), keepdim=True)
        grad_weights = (grad_weights - inner) * used
    grad_locations = torch.stack((grad_x, grad_y), dim=-1)
    return (grad_value.to(value.dtype), grad_locations.to(locations.dtype),
            grad_weights.to(weights.dtype))


def _fake(value, shapes, starts, locations, weights, images, offsets,
          softmax):
    rows = len(locations) if offsets is None else len(offsets) - 1
    return value.new_empty(rows, value.shape[2] * value.shape[3])


def _setup_context(ctx, inputs, output):
    *tensors, ctx.softmax = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx, grad):
    tensors = ctx.saved_tensors
    grad_value, grad_locations, grad_weights = ms_deform_attn_backward(
        grad, *tensors, ctx.softmax)
    return (grad_value, None, None, grad_locations, grad_weights, None, None,
            None)


_INPUTS = ('Tensor value, Tensor shapes, Tensor starts, Tensor locations, '
           'Tensor weights, Tensor? images, Tensor? offsets, bool softmax')
ms_deform_attn_backward = define(
    f'ms_deform_attn_backward(Tensor grad, {_INPUTS}) '
    '-> (Tensor, Tensor, Tensor)',
    ms_deform_attn_backward_reference,
    fake=lambda grad, value, shapes, starts, locations, weights, *rest:
    (value.new_empty(value.shape), locations.new_empty(locations.shape),
     weights.new_empty(weights.shape)))
ms_deform_attn_forward = define(
    f'ms_deform_attn({_INPUTS}) -> Tensor',
    ms_deform_attn_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)


def ms_deform_attn(value: Tensor,
                   spatial_shapes: Tensor,
                   level_start_index: Tensor,
                   locations: Tensor,
                   weights: Tensor,
                   softmax: bool = False) -> Tensor:
    """Weighted sum of bilinear samples from maps of several scales.

    Args:
        value: (B, S, H, C) floating; the maps of the L levels one after the
            other, H heads of C channels.
        spatial_shapes: (L, 2) int64 height and width of each level.
        level_start_index: (L,) int64 first cell of each level in S.
        locations: (B, Q, H, L, P, 2) floating x, y; 0 and 1 are the borders
            of the map, outside of which everything is zero.
        weights: (B, Q, H, L, P) floating.
        softmax: take ``weights`` as logits, over the L * P samples.

    Returns:
        (B, Q, H * C) in the dtype of ``value``.

    Raises:
        ValueError: on a shape, dtype or device mismatch.
        RuntimeError: on levels that reach out of S (CPU; on CUDA such cells
            read as zero).

    Note:
        Half precision is summed in float32; ``locations`` and ``weights``
        may stay float32 beside half ``value``. Nothing is read back to the
        host. Deterministic, except for the gradient of ``value`` on CUDA,
        where float32 atomics add in any order.
    """
    check_maps(value, spatial_shapes, level_start_index, locations=locations,
               weights=weights)
    if locations.dim() != 6:
        raise ValueError('locations must have shape (B, Q, H, L, P, 2), got '
                         f'{tuple(locations.shape)}')
    lead = (len(value), locations.shape[1])
    check_samples(value, len(spatial_shapes), locations, weights, lead)
    out = ms_deform_attn_forward(value, spatial_shapes, level_start_index,
                                 locations.flatten(0, 1),
                                 weights.flatten(0, 1), None, None, softmax)
    return out.view(*lead, out.shape[1])
