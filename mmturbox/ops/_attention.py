"""Maps of several scales, samples and hits: what attention has in common."""

import torch
from torch import Tensor

# x and y of the corners: upper left, upper right, lower left, lower right.
_RIGHT = (0, 1, 0, 1)
_BELOW = (0, 0, 1, 1)


def compute(tensor: Tensor) -> Tensor:
    """Half precision as float32, anything else as it is."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


class Corners:
    """The four corners of bilinear reads from a map, zeros around it.

    Attributes:
        cells: (4, ...) int64 cell of the flat map, in it also where the
            corner is not.
        weights, by_x, by_y: (4, ...) weight of a corner, and its slope by
            the location; zero where the corner is outside.
    """

    def __init__(self, x: Tensor, y: Tensor, height: int,
                 width: int) -> None:
        x, y = x * width - 0.5, y * height - 0.5
        inside = (x > -1) & (y > -1) & (x < width) & (y < height)
        x, y = (torch.where(inside, v, 0.) for v in (x, y))
        x0, y0 = x.floor(), y.floor()
        self.cells = x.new_empty((4, *x.shape), dtype=torch.int64)
        self.weights, self.by_x, self.by_y = x.new_empty((3, 4, *x.shape))
        for k, (right, below) in enumerate(zip(_RIGHT, _BELOW, strict=True)):
            cx, cy = x0.long() + right, y0.long() + below
            here = (inside & (cx >= 0) & (cx < width) & (cy >= 0)
                    & (cy < height))
            wx = x - x0 if right else 1 - (x - x0)
            wy = y - y0 if below else 1 - (y - y0)
            self.cells[k] = torch.where(here, cy * width + cx, 0)
            self.weights[k] = torch.where(here, wx * wy, 0.)
            self.by_x[k] = torch.where(here, wy * (2 * right - 1), 0.) * width
            self.by_y[k] = torch.where(here, wx * (2 * below - 1),
                                       0.) * height


def images_of(value: Tensor, hits: int, images: Tensor | None) -> Tensor:
    """(T,) the image that each hit reads."""
    if images is not None:
        return images.long()
    index = torch.arange(hits, device=value.device)
    return index // max(hits // max(len(value), 1), 1)


def rows_of(hits: int, images: Tensor,
            offsets: Tensor | None) -> tuple[Tensor, Tensor, int]:
    """(T,) row of each hit, (T,) its share in it, and the number of rows.

    Hits behind the last row have row N and no share.
    """
    index = torch.arange(hits, device=images.device)
    if offsets is None:
        return index, torch.ones_like(index), hits
    num_rows = len(offsets) - 1
    row = torch.searchsorted(offsets[1:].contiguous(), index, right=True)
    counts = torch.diff(offsets, append=offsets[-1:])
    share = 1 / counts.clamp(min=1).double()
    return row, torch.where(row < num_rows, share[row], 0.), num_rows


def per_row(hits: Tensor, row: Tensor, share: Tensor,
            num_rows: int) -> Tensor:
    """Mean of (T, ...) hits by row, (N, ...)."""
    out = hits.new_zeros(num_rows + 1, *hits.shape[1:])
    share = share.to(hits.dtype).view(-1, *[1] * (hits.dim() - 1))
    # A hit without share may hold anything.
    part = torch.where(share > 0, hits * share, 0.)
    return out.index_add_(0, row, part)[:num_rows]


def check_maps(value: Tensor, spatial_shapes: Tensor,
               level_start_index: Tensor, **others: Tensor) -> None:
    """Raise ValueError unless maps, their levels and the rest fit."""
    if value.dim() != 4 or not value.is_floating_point():
        raise ValueError('value must be floating of shape (B, S, H, C), got '
                         f'{tuple(value.shape)} {value.dtype}')
    levels = len(spatial_shapes)
    for name, tensor, shape in (
        ('spatial_shapes', spatial_shapes, (levels, 2)),
        ('level_start_index', level_start_index, (levels, ))):
        if tensor.shape != shape or tensor.dtype != torch.int64:
            raise ValueError(f'{name} must be int64 of shape {shape}, got '
                             f'{tuple(tensor.shape)} {tensor.dtype}')
        others[name] = tensor
    for name, tensor in others.items():
        if tensor.device != value.device:
            raise ValueError(f'{name} must be on the device of value, got '
                             f'{tensor.device} and {value.device}')


def check_samples(value: Tensor, levels: int, locations: Tensor,
                   weights: Tensor, lead: tuple[int, ...]) -> None:
    tail = (value.shape[2], levels, locations.shape[-2], 2)
    for name, tensor, shape in (('locations', locations, (*lead, *tail)),
                                ('weights', weights, (*lead, *tail[:-1]))):
        if tensor.shape != shape or not tensor.is_floating_point():
            raise ValueError(f'{name} must be floating of shape {shape}, got '
                             f'{tuple(tensor.shape)} {tensor.dtype}')


def check_hits(hits: int, images: Tensor, offsets: Tensor) -> None:
    """Raise ValueError unless images and offsets are a list of hits."""
    if images.shape != (hits, ) or images.dtype != torch.int64:
        raise ValueError(f'images must be int64 of shape {(hits, )}, got '
                         f'{tuple(images.shape)} {images.dtype}')
    if offsets.dim() != 1 or not len(
            offsets) or offsets.dtype != torch.int64:
        raise ValueError('offsets must be int64 of shape (N + 1,), got '
                         f'{tuple(offsets.shape)} {offsets.dtype}')
