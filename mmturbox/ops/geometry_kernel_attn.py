"""Geometric kernel attention of GKT (arXiv:2206.04584), as MapTR uses it.

Definition: MapTR's attention (arXiv:2208.14437). A head reads the cells of a
kernel around its reference, which is rounded to a cell, half to even;
cells outside of the map are moved to its border. Locations get no gradient.
"""

import torch
from torch import Tensor

from ._attention import (
    check_hits,
    check_maps,
    compute,
    images_of,
    per_row,
    rows_of,
)
from ._library import define


def kernel_offsets(kernel_size: tuple[int, int],
                   dilation: int,
                   device: torch.device | None = None) -> Tensor:
    """(K, 2) int64 x, y of a kernel's (height, width) cells, x outermost."""
    height, width = (
        (torch.arange(n, device=device) - n // 2) * dilation
        for n in kernel_size)
    return torch.cartesian_prod(width, height).view(-1, 2)


def _cells(references: Tensor, shapes: Tensor, starts: Tensor,
           kernel: list[int]) -> Tensor:
    """(T, H, 2) references -> (T, H, L, K) int64 cells."""
    offsets = kernel_offsets((kernel[0], kernel[1]), kernel[2],
                             references.device)
    found = []
    for (height, width), start in zip(shapes.tolist(), starts, strict=True):
        size = references.new_tensor((width, height))
        at = (references * size)[:, :, None] + offsets
        at = at.round().nan_to_num(0.)
        x = at[..., 0].clamp(0, width - 1).long()
        y = at[..., 1].clamp(0, height - 1).long()
        found.append(start + y * width + x)
    return torch.stack(found, dim=2)


def _inputs(value: Tensor, shapes: Tensor, starts: Tensor,
            references: Tensor, logits: Tensor, images: Tensor | None,
            offsets: Tensor | None, kernel: list[int]):
    """Maps, softmax (T, H, L * K), index of the reads, and the rows."""
    maps = compute(value)
    weights = logits.to(maps.dtype).flatten(2).softmax(2)
    image = images_of(value, len(logits), images)
    row, share, num_rows = rows_of(len(logits), image, offsets)
    image = torch.where(share > 0, image, 0)
    cells = _cells(references.to(maps.dtype), shapes, starts,
                   kernel).flatten(2)
    head = torch.arange(value.shape[2], device=value.device)[:, None]
    index = torch.broadcast_tensors(image[:, None, None], cells, head)
    return maps, weights, index, row, share, num_rows


def geometry_kernel_attn_reference(value: Tensor, shapes: Tensor,
                                   starts: Tensor, references: Tensor,
                                   logits: Tensor, images: Tensor | None,
                                   offsets: Tensor | None,
                                   kernel: list[int]) -> Tensor:
    maps, weights, index, row, share, num_rows = _inputs(
        value, shapes, starts, references, logits, images, offsets, kernel)
    out = (maps[index] * weights[..., None]).sum(2)
    if offsets is not None:
        out = per_row(out, row, share, num_rows)
    return out.flatten(1).to(value.dtype)


def geometry_kernel_attn_backward_reference(
        grad: Tensor, value: Tensor, shapes: Tensor, starts: Tensor,
        references: Tensor, logits: Tensor, images: Tensor | None,
        offsets: Tensor | None, kernel: list[int]) -> tuple[Tensor, Tensor]:
    maps, weights, index, row, share, num_rows = _inputs(
        value, shapes, starts, references, logits, images, offsets, kernel)
    grad_value = maps.new_zeros(maps.shape)
    if num_rows == 0:
        return grad_value.to(value.dtype), logits.new_zeros(logits.shape)
    above = grad.to(maps.dtype).view(num_rows, *value.shape[2:])
    share = share.to(maps.dtype)[:, None, None]
    above = above[row.clamp(max=num_rows - 1)] * share
    # What stands behind the last hit may hold anything.
    weights = torch.where(share > 0, weights, 0.)
    slopes = (maps[index] * above.unsqueeze(2)).sum(3)
    slopes = torch.where(share > 0, slopes, 0.)
    grad_value.index_put_(index, weights[..., None] * above.unsqueeze(2),
                          accumulate=True)
    inner = (slopes * weights).sum(2, keepdim=True)
    grad_logits = weights * (slopes - inner)
    return (grad_value.to(value.dtype),
            grad_logits.view_as(logits).to(logits.dtype))


def _fake(value, shapes, starts, references, logits, images, offsets,
          kernel):
    rows = len(logits) if offsets is None else len(offsets) - 1
    return value.new_empty(rows, value.shape[2] * value.shape[3])


def _setup_context(ctx, inputs, output):
    *tensors, ctx.kernel = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx, grad):
    grad_value, grad_logits = geometry_kernel_attn_backward(
        grad, *ctx.saved_tensors, ctx.kernel)
    return grad_value, None, None, None, grad_logits, None, None, None


_INPUTS = ('Tensor value, Tensor shapes, Tensor starts, Tensor references, '
           'Tensor logits, Tensor? images, Tensor? offsets, int[] kernel')
geometry_kernel_attn_backward = define(
    f'geometry_kernel_attn_backward(Tensor grad, {_INPUTS}) '
    '-> (Tensor, Tensor)',
    geometry_kernel_attn_backward_reference,
    fake=lambda grad, value, shapes, starts, references, logits, *rest:
    (value.new_empty(value.shape), logits.new_empty(logits.shape)))
geometry_kernel_attn_forward = define(
    f'geometry_kernel_attn({_INPUTS}) -> Tensor',
    geometry_kernel_attn_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)


def _check(value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor,
           references: Tensor, logits: Tensor, lead: tuple[int, ...],
           kernel: list[int]) -> None:
    check_maps(value, spatial_shapes, level_start_index,
               references=references, logits=logits)
    heads, levels = value.shape[2], len(spatial_shapes)
    for name, tensor, shape in (
        ('references', references, (*lead, heads, 2)),
        ('logits', logits, (*lead, heads, levels, kernel[0] * kernel[1]))):
        if tensor.shape != shape or not tensor.is_floating_point():
            raise ValueError(f'{name} must be floating of shape {shape}, got '
                             f'{tuple(tensor.shape)} {tensor.dtype}')


def geometry_kernel_attn(value: Tensor,
                         spatial_shapes: Tensor,
                         level_start_index: Tensor,
                         references: Tensor,
                         logits: Tensor,
                         kernel_size: tuple[int, int],
                         dilation: int = 1) -> Tensor:
    """Attention over the cells of a kernel around projected points.

    Args:
        value: (B, S, H, C) floating; the maps of L levels, no level empty.
        spatial_shapes: (L, 2) int64 height and width of each level.
        level_start_index: (L,) int64 first cell of each level in S.
        references: (B, Q, H, 2) x, y of each head's point, 0 and 1 at the
            borders of the map; no gradient.
        logits: (B, Q, H, L, K); weights are their softmax over L * K. Cells
            of the kernel are counted with x outermost.
        kernel_size: height and width of the kernel, K cells.
        dilation: cells from one cell of the kernel to the next.

    Returns:
        (B, Q, H * C) in the dtype of ``value``.

    Raises:
        ValueError: on a shape, dtype or device mismatch.
        RuntimeError: on levels that reach out of S or are empty (CPU; on
            CUDA such cells read as zero).

    Note:
        Half precision is summed in float32. Nothing is read back to the
        host. Deterministic, except for the gradient of ``value`` on CUDA,
        where float32 atomics add in any order.
    """
    if references.dim() != 4:
        raise ValueError('references must have shape (B, Q, H, 2), got '
                         f'{tuple(references.shape)}')
    kernel = [*kernel_size, dilation]
    lead = (len(value), references.shape[1])
    _check(value, spatial_shapes, level_start_index, references, logits,
           lead, kernel)
    out = geometry_kernel_attn_forward(
        value, spatial_shapes, level_start_index, references.flatten(0, 1),
        logits.flatten(0, 1), None, None, kernel)
    return out.view(*lead, out.shape[1])


def geometry_kernel_attn_ragged(value: Tensor,
                                spatial_shapes: Tensor,
                                level_start_index: Tensor,
                                references: Tensor,
                                logits: Tensor,
                                images: Tensor,
                                offsets: Tensor,
                                kernel_size: tuple[int, int],
                                dilation: int = 1) -> Tensor:
    """Geometric kernel attention of queries to the images that see them.

    Args:
        references: (T, H, 2) of the hits, sorted by query.
        logits: (T, H, L, K).
        images, offsets: the list of hits, see
            :func:`mmturbox.ops.ms_deform_attn_ragged`.
        value, spatial_shapes, level_start_index, kernel_size, dilation: as
            in :func:`geometry_kernel_attn`.

    Returns:
        (N, H * C), the mean over the hits of each query, zero without any.

    Note:
        As :func:`geometry_kernel_attn`, errors too.
    """
    kernel = [*kernel_size, dilation]
    _check(value, spatial_shapes, level_start_index, references, logits,
           (len(references), ), kernel)
    check_maps(value, spatial_shapes, level_start_index, images=images,
               offsets=offsets)
    check_hits(len(references), images, offsets)
    return geometry_kernel_attn_forward(
        value, spatial_shapes, level_start_index, references, logits, images,
        offsets, kernel)
