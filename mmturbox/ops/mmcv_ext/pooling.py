"""mmcv's calls that pool features in regions, in plain PyTorch.

Deformable RoI pooling (arXiv:1811.11168), BezierAlign (ABCNet,
arXiv:2002.10200), BorderAlign (BorderDet, arXiv:2007.11056), precise RoI
pooling (arXiv:1807.11590) and RoI max pooling.
"""

import torch
from torch import Tensor

from ._provided import provides
from ._sampling import (
    bilinear_sum,
    bin_samples,
    fill_gradients,
    full,
    pool_bins,
)

# RoIs pooled at once in precise RoI pooling, to bound its memory.
_CHUNK = 64


def _deform_roi_pool(features: Tensor, offset: Tensor | None, rois: Tensor,
                     pooled_height: int, pooled_width: int,
                     spatial_scale: float, sampling_ratio: int,
                     gamma: float) -> Tensor:
    rois = full(rois)
    left, top, right, bottom = (rois[:, 1:] * spatial_scale - 0.5).unbind(1)
    width, height = right - left, bottom - top
    rows, *count_h = bin_samples(height, pooled_height, sampling_ratio)
    columns, *count_w = bin_samples(width, pooled_width, sampling_ratio)
    y = (rows + top[:, None, None])[:, :, None, :, None]
    x = (columns + left[:, None, None])[:, None, :, None]
    if offset is not None:
        size = torch.stack([width, height], 1)[:, :, None, None]
        move = (offset * (gamma * size))[..., None, None]
        x, y = x + move[:, 0], y + move[:, 1]
    return pool_bins(features, rois[:, 0], y, x, count_h, count_w)


@provides
def deform_roi_pool_forward(input: Tensor, rois: Tensor, offset: Tensor,
                            output: Tensor, pooled_height: int,
                            pooled_width: int, spatial_scale: float,
                            sampling_ratio: int, gamma: float) -> None:
    """An empty ``offset`` means none."""
    output.copy_(
        _deform_roi_pool(
            full(input),
            full(offset) if offset.numel() else None, rois, pooled_height,
            pooled_width, spatial_scale, sampling_ratio, gamma))


@provides
def deform_roi_pool_backward(grad_output: Tensor, input: Tensor,
                             rois: Tensor, offset: Tensor, grad_input: Tensor,
                             grad_offset: Tensor, pooled_height: int,
                             pooled_width: int, spatial_scale: float,
                             sampling_ratio: int, gamma: float) -> None:
    """The true derivative also for samples at the map's border."""
    has_offset = bool(offset.numel())
    fill_gradients(
        lambda features, offset=None: _deform_roi_pool(
            features, offset, rois, pooled_height, pooled_width,
            spatial_scale, sampling_ratio, gamma),
        [input, offset] if has_offset else [input],
        [grad_input, grad_offset] if has_offset else [grad_input],
        grad_output)


def _bezier(points: Tensor, parts: int) -> Tensor:
    """(R, 4, 2) control points -> (R, parts, 2) places on the curve."""
    at = torch.arange(parts, device=points.device, dtype=points.dtype) / parts
    rest = 1 - at
    basis = torch.stack([
        rest**3, 3 * at * rest**2, 3 * at**2 * rest, at**3], 1)
    return basis @ points


def _bezier_align(features: Tensor, rois: Tensor, aligned_height: int,
                  aligned_width: int, spatial_scale: float,
                  sampling_ratio: int, aligned: bool) -> Tensor:
    """(R, 17) rows: image, upper curve, lower curve from right to left."""
    rois = full(rois)
    points = rois[:, 1:].unflatten(1, (2, 4, 2)) * spatial_scale
    upper, lower = points[:, 0], points[:, 1].flip(1)
    size = torch.maximum((upper[:, 0] - upper[:, 3]).abs(),
                         (lower[:, 0] - lower[:, 3]).abs())
    width, height = (size if aligned else size.clamp(min=1)).unbind(1)
    down = torch.arange(
        aligned_height, device=rois.device, dtype=rois.dtype)
    down = (down / aligned_height)[:, None, None]
    centre = (_bezier(lower, aligned_width)[:, None] * down
              + _bezier(upper, aligned_width)[:, None] * (1 - down))
    if aligned:
        centre = centre - 0.5
    x, y = centre[..., None, None].unbind(3)
    bin_height, bin_width = height / aligned_height, width / aligned_width
    rows, *count_h = bin_samples(bin_height, 1, sampling_ratio)
    columns, *count_w = bin_samples(bin_width, 1, sampling_ratio)
    rows = rows - bin_height[:, None, None] / 2
    columns = columns - bin_width[:, None, None] / 2
    return pool_bins(features, rois[:, 0],
                     y + rows[:, :, None, :, None],
                     x + columns[:, :, None, None], count_h, count_w)


@provides
def bezier_align_forward(input: Tensor, rois: Tensor, output: Tensor,
                         aligned_height: int, aligned_width: int,
                         spatial_scale: float, sampling_ratio: int,
                         aligned: bool) -> None:
    output.copy_(
        _bezier_align(
            full(input), rois, aligned_height, aligned_width, spatial_scale,
            sampling_ratio, aligned))


@provides
def bezier_align_backward(grad_output: Tensor, rois: Tensor,
                          grad_input: Tensor, aligned_height: int,
                          aligned_width: int, spatial_scale: float,
                          sampling_ratio: int, aligned: bool) -> None:
    fill_gradients(
        lambda features: _bezier_align(features, rois, aligned_height,
                                       aligned_width, spatial_scale,
                                       sampling_ratio, aligned),
        [grad_input], [grad_input], grad_output)


def _border_values(features: Tensor, boxes: Tensor,
                   pool_size: int) -> Tensor:
    """Samples along the borders: (N, C, boxes, 4, pool_size + 1).

    Top and left run from the first corner, bottom and right from the second;
    each has its own quarter of the (N, 4 * C, H, W) features.
    """
    number, channels = features.shape[:2]
    left, top, right, bottom = full(boxes).unbind(2)
    step_x, step_y = (right - left) / pool_size, (bottom - top) / pool_size
    at = torch.arange(pool_size + 1, device=boxes.device, dtype=left.dtype)
    zero = torch.zeros_like(step_x)

    def along(starts: list[Tensor], steps: list[Tensor]) -> Tensor:
        start, step = torch.stack(starts, 1), torch.stack(steps, 1)
        return (start[..., None] + step[..., None] * at).flatten()[:, None]

    x = along([left, left, right, right], [step_x, zero, -step_x, zero])
    y = along([top, top, bottom, bottom], [zero, step_y, zero, -step_y])
    image = torch.arange(4 * number, device=boxes.device)
    values = bilinear_sum(
        features.view(4 * number, channels // 4, *features.shape[2:]),
        image.repeat_interleave(boxes.shape[1] * (pool_size + 1)), y, x)
    return values.view(number, 4, boxes.shape[1], pool_size + 1,
                       channels // 4).permute(0, 4, 2, 1, 3)


@provides
def border_align_forward(input: Tensor, boxes: Tensor, output: Tensor,
                         argmax_idx: Tensor, pool_size: int) -> None:
    """The first of equal maxima counts."""
    values, where = _border_values(full(input), boxes, pool_size).max(-1)
    output.copy_(values)
    argmax_idx.copy_(where)


@provides
def border_align_backward(grad_output: Tensor, boxes: Tensor,
                          argmax_idx: Tensor, grad_input: Tensor,
                          pool_size: int) -> None:
    fill_gradients(
        lambda features: _border_values(features, boxes, pool_size).gather(
            -1, argmax_idx.long()[..., None])[..., 0], [grad_input],
        [grad_input], grad_output)


def _hat_integral(start: Tensor, size: Tensor, bins: int,
                  pixels: int) -> Tensor:
    """Share of each pixel in each bin under linear interpolation.

    (R,), (R,) -> (R, bins, pixels); pixels outside of the map are zero.
    """
    edge = torch.arange(bins + 1, device=size.device, dtype=size.dtype)
    edges = start[:, None] + edge * (size / bins)[:, None]
    pixel = torch.arange(pixels, device=size.device, dtype=size.dtype)
    at = (edges[..., None] - pixel).clamp(-1, 1)
    return (at - at * at.abs() / 2).diff(dim=1)


def _prroi_pool(features: Tensor, rois: Tensor, pooled_height: int,
                pooled_width: int, spatial_scale: float) -> Tensor:
    """Means of the bilinear surface over the bins; zero for empty ones."""
    left, top, right, bottom = (rois[:, 1:] * spatial_scale).unbind(1)
    width, height = (right - left).clamp(min=0), (bottom - top).clamp(min=0)
    rows = _hat_integral(top, height, pooled_height, features.shape[2])
    columns = _hat_integral(left, width, pooled_width, features.shape[3])
    area = width * height / (pooled_height * pooled_width)
    rows = rows / torch.where(area == 0, torch.inf, area)[:, None, None]
    parts = [features.new_zeros(0, features.shape[1], pooled_height,
                                pooled_width)]
    places = [rois.new_zeros(0, dtype=torch.int64)]
    for image, plane in enumerate(features):
        chosen = (rois[:, 0].long() == image).nonzero()[:, 0]
        for part in chosen.split(_CHUNK):
            places.append(part)
            narrow = torch.einsum('chw,rqw->rchq', plane, columns[part])
            parts.append(torch.einsum('rchq,rph->rcpq', narrow, rows[part]))
    return torch.cat(parts)[torch.cat(places).argsort()]


@provides
def prroi_pool_forward(input: Tensor, rois: Tensor, output: Tensor,
                       pooled_height: int, pooled_width: int,
                       spatial_scale: float) -> None:
    output.copy_(
        _prroi_pool(
            full(input), full(rois), pooled_height, pooled_width,
            spatial_scale))


@provides
def prroi_pool_backward(grad_output: Tensor, rois: Tensor,
                        grad_input: Tensor, pooled_height: int,
                        pooled_width: int, spatial_scale: float) -> None:
    fill_gradients(
        lambda features: _prroi_pool(features, full(rois), pooled_height,
                                     pooled_width, spatial_scale),
        [grad_input], [grad_input], grad_output)


@provides
def prroi_pool_coor_backward(output: Tensor, grad_output: Tensor,
                             input: Tensor, rois: Tensor, grad_rois: Tensor,
                             pooled_height: int, pooled_width: int,
                             spatial_scale: float) -> None:
    fill_gradients(
        lambda boxes: _prroi_pool(
            full(input), boxes, pooled_height, pooled_width, spatial_scale),
        [rois], [grad_rois], grad_output)


def _bin_edges(low: Tensor, high: Tensor, bins: int,
               pixels: int) -> tuple[Tensor, Tensor]:
    """First pixel, and that after the last, of each bin: (R, bins) each."""
    size = (high - low)[:, None] / bins
    at = torch.arange(bins, device=low.device, dtype=low.dtype)
    first = (at * size + low[:, None]).floor().clamp(0, pixels)
    last = ((at + 1) * size + low[:, None]).ceil().clamp(0, pixels)
    return first.long(), last.long()


@provides
def roi_pool_forward(input: Tensor, rois: Tensor, output: Tensor,
                     argmax: Tensor, pooled_height: int, pooled_width: int,
                     spatial_scale: float) -> None:
    """Maxima of whole pixels; 0 and -1 for a bin without pixels."""
    height, width = input.shape[2:]
    corners = full(rois)[:, 1:]
    left, top = (corners[:, :2] * spatial_scale).unbind(1)
    right, bottom = ((corners[:, 2:] + 1) * spatial_scale).unbind(1)
    top, below = (t[:, :, None] for t in _bin_edges(
        top, bottom, pooled_height, height))
    left, beyond = (t[:, None] for t in _bin_edges(
        left, right, pooled_width, width))
    table = input.permute(0, 2, 3, 1).reshape(-1, input.shape[1])
    base = rois[:, 0].long()[:, None, None] * (height * width)
    best = output.new_full(
        (*output.shape[:1], pooled_height, pooled_width, output.shape[1]),
        float('-inf'))
    where = torch.full_like(best, -1, dtype=torch.int64)
    down = int((below - top).max()) if len(rois) else 0
    across = int((beyond - left).max()) if len(rois) else 0
    # One pixel of every bin at a time, in reading order: the first maximum
    # wins, and memory stays that of the output.
    for step in range(max(down, 0) * max(across, 0)):
        y, x = top + step // across, left + step % across
        at = (y * width + x).clamp(max=height * width - 1)
        value = table[base + at]
        better = ((y < below) & (x < beyond))[..., None] & (value > best)
        best = torch.where(better, value, best)
        where = torch.where(better, at[..., None], where)
    best = torch.where(where < 0, 0, best)
    output.copy_(best.permute(0, 3, 1, 2))
    argmax.copy_(where.permute(0, 3, 1, 2))


@provides
def roi_pool_backward(grad_output: Tensor, rois: Tensor, argmax: Tensor,
                      grad_input: Tensor, pooled_height: int,
                      pooled_width: int, spatial_scale: float) -> None:
    number, channels, height, width = grad_input.shape
    channel = torch.arange(channels, device=rois.device)[:, None, None]
    plane = rois[:, 0].long()[:, None, None, None] * channels + channel
    at = plane * (height * width) + argmax.clamp(min=0)
    grad = torch.where(argmax < 0, 0, grad_output)
    total = full(grad_input).flatten().scatter_add(
        0, at.flatten(), full(grad).flatten())
    grad_input.copy_(total.view(grad_input.shape))
