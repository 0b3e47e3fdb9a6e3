"""Bilinear sampling as mmcv's RoI operators do it, in plain PyTorch.

A sample at most one pixel outside of the map takes the value of the border;
farther away, or at NaN, it is zero. Differentiable in features and
coordinates; half precision is computed in float32. Deterministic.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def full(tensor: Tensor) -> Tensor:
    """``tensor`` in the dtype that is computed in."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def fill_gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor],
                   buffers: Sequence[Tensor], grad_output: Tensor) -> None:
    """Write the gradients of ``function(*inputs)`` into ``buffers``."""
    leaves = [full(tensor).detach().requires_grad_() for tensor in inputs]
    with torch.enable_grad():
        output = function(*leaves)
    grads = torch.autograd.grad(output, leaves, grad_output.to(output.dtype))
    for buffer, grad in zip(buffers, grads, strict=True):
        buffer.copy_(grad)


def _axis(at: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Two pixels and their weights along an axis: (..., 2) each."""
    at = at.clamp(0, size - 1)
    low = at.detach().nan_to_num().long()
    part = at - low
    return (torch.stack([low, (low + 1).clamp(max=size - 1)], -1),
            torch.stack([1 - part, part], -1))


def bilinear_sum(features: Tensor, batch: Tensor, y: Tensor, x: Tensor,
                 weight: Tensor | None = None) -> Tensor:
    """Weighted sums of bilinear samples.

    Args:
        features: (N, C, H, W).
        batch: (B,) integers, the map of each sum.
        y, x: (B, S) pixel coordinates of the samples.
        weight: (B, S), or None for ones.

    Returns:
        (B, C).
    """
    channels, height, width = features.shape[1:]
    rows, row_weight = _axis(y, height)
    columns, column_weight = _axis(x, width)
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    index = (rows[..., :, None] * width + columns[..., None, :]).flatten(2)
    index = index + batch.long()[:, None, None] * (height * width)
    share = (row_weight[..., :, None] * column_weight[..., None, :]).flatten(2)
    if weight is not None:
        share = share * weight[..., None]
    share = torch.where(inside[..., None], share, 0)
    table = features.permute(0, 2, 3, 1).reshape(-1, channels)
    return embedding_bag(
        index.flatten(1), table, mode='sum',
        per_sample_weights=share.flatten(1).to(table.dtype))


def bin_samples(size: Tensor, bins: int,
                ratio: int) -> tuple[Tensor, Tensor, Tensor]:
    """Evenly spaced samples in each of ``bins`` equal parts of a length.

    Args:
        size: (R,) lengths in pixels.
        ratio: samples in a part; 0 for as many as it has pixels.

    Returns:
        Places (R, bins, S) from the start of the length, which of them count
        (R, S), and how many do (R,).
    """
    part = size / bins
    number, most = torch.full_like(part, ratio), ratio
    if ratio <= 0:
        number = part.ceil().nan_to_num(0, 0, 0)
        most = max(int(number.max()), 1) if len(number) else 1
    step = torch.arange(most, device=size.device, dtype=size.dtype)
    start = torch.arange(bins, device=size.device, dtype=size.dtype)
    inner = (step + 0.5) * (part / number.clamp(min=1))[:, None]
    places = start[:, None] * part[:, None, None] + inner[:, None]
    return places, step < number[:, None], number.clamp(min=0)


def pool_bins(features: Tensor, batch: Tensor, y: Tensor, x: Tensor,
              rows: tuple[Tensor, Tensor],
              columns: tuple[Tensor, Tensor]) -> Tensor:
    """Means of bilinear samples in the bins of RoIs.

    Args:
        features: (N, C, H, W).
        batch: (R,) the map of each RoI.
        y, x: broadcast to (R, bins_h, bins_w, S_h, S_w).
        rows, columns: which samples count and how many, see
            :func:`bin_samples`.

    Returns:
        (R, C, bins_h, bins_w).
    """
    y, x = torch.broadcast_tensors(y, x)
    count = (rows[1] * columns[1]).clamp(min=1)
    weight = (rows[0][:, :, None] & columns[0][:, None]) / count[:, None, None]
    weight = weight[:, None, None].expand(y.shape)
    shape = y.shape[:3]
    sums = bilinear_sum(
        features,
        batch.long()[:, None, None].expand(shape).flatten(),
        *(t.flatten(3).flatten(0, 2) for t in (y, x, weight)))
    return sums.view(*shape, features.shape[1]).permute(0, 3, 1, 2)
