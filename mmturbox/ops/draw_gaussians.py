"""Heat maps with one Gaussian a box, drawn for the whole batch at once.

Definition: mmdet3d's ``gaussian_radius`` and ``draw_heatmap_gaussian`` called
for each box. Each value is the float64 Gaussian rounded to float32, so that
results do not depend on the backend (the float64 ``exp`` of numpy, torch and
libm part in the last bit only, which the rounding removes).
"""

import torch
from torch import Tensor

from ._library import define

# Boxes drawn together by the reference: bounds its memory to a few
# dense maps of this many planes.
_CHUNK = 256
# Larger than any map, and exact in float32: keeps absurd sizes in range.
_MAX_RADIUS = float(1 << 20)


def gaussian_radius(width: Tensor, length: Tensor, overlap: float) -> Tensor:
    """Radius at which a shifted box still overlaps by ``overlap``.

    Equals mmdet3d's ``gaussian_radius((width, length))`` bit for bit; factors
    that are powers of two are moved, which does not change a float.

    Args:
        width, length: (N,) float32, in cells.

    Returns:
        (N,) float32, in cells.
    """
    total = width + length
    squared = total * total
    area = length * width * (1 - overlap) / (1 + overlap)
    outside = (total + torch.sqrt(torch.sub(squared, area, alpha=4))) / 2
    inside = (1 - overlap) * length * width
    both = total + torch.sqrt(torch.sub(squared, inside, alpha=4))
    shifted = -2 * overlap * total
    root = torch.sqrt(shifted * shifted + 4 * (4 * overlap) * inside)
    one = (shifted + root) / 2
    return torch.minimum(torch.minimum(outside, both), one)


def draw_gaussians_reference(planes: Tensor, centers: Tensor, radii: Tensor,
                             num_planes: int, height: int,
                             width: int) -> Tensor:
    maps = torch.zeros(
        num_planes, height * width, dtype=torch.float32, device=planes.device)
    if maps.numel() == 0:
        return maps.view(num_planes, height, width)
    ys = torch.arange(height, device=planes.device)[:, None]
    xs = torch.arange(width, device=planes.device)
    for plane, center, radius in zip(
            planes.split(_CHUNK),
            centers.split(_CHUNK),
            radii.split(_CHUNK),
            strict=True):
        center, radius = center.long(), radius.long()[:, None, None]
        dx = xs - center[:, 0, None, None]
        dy = ys - center[:, 1, None, None]
        sigma = (2 * radius + 1).double() / 6
        drawn = ((dx.abs() <= radius) & (dy.abs() <= radius)
                 & (plane >= 0)[:, None, None])
        values = torch.exp(-(dx * dx + dy * dy) / (2 * sigma * sigma))
        values = values.float() * drawn
        maps.scatter_reduce_(
            0,
            plane.clamp(min=0)[:, None].expand(-1, height * width),
            values.flatten(1),
            'amax')
    return maps.view(num_planes, height, width)


def draw_box_gaussians_reference(planes: Tensor, centers: Tensor,
                                 sizes: Tensor, num_planes: int, height: int,
                                 width: int, overlap: float,
                                 min_radius: int) -> Tensor:
    radii = gaussian_radius(sizes[:, 0], sizes[:, 1], overlap)
    radii = radii.nan_to_num(nan=0.0).clamp(min_radius, _MAX_RADIUS).long()
    return draw_gaussians_reference(planes, centers, radii, num_planes,
                                    height, width)


def _fake(planes, centers, extents, num_planes, height, width, *args):
    return planes.new_empty((num_planes, height, width), dtype=torch.float32)


_SHAPE = 'int num_planes, int height, int width'
_draw = define(
    f'draw_gaussians(Tensor planes, Tensor centers, Tensor radii, {_SHAPE}) '
    '-> Tensor',
    draw_gaussians_reference,
    fake=_fake)
_draw_boxes = define(
    f'draw_box_gaussians(Tensor planes, Tensor centers, Tensor sizes, '
    f'{_SHAPE}, float overlap, int min_radius) -> Tensor',
    draw_box_gaussians_reference,
    fake=_fake)


def _check(planes: Tensor, *others: tuple[Tensor, str, tuple, torch.dtype]
           ) -> None:
    """Each of ``others`` has a row for every box and lies with ``planes``."""
    for tensor, name, tail, dtype in ((planes, 'planes', (), torch.int64),
                                      *others):
        if tensor.shape != (len(planes), *tail) or tensor.dtype != dtype:
            raise ValueError(
                f'{name} must be {dtype} of shape {(len(planes), *tail)}, '
                f'got {tensor.dtype} of shape {tuple(tensor.shape)}')
        if tensor.device != planes.device:
            raise ValueError(f'{name} must be on {planes.device}, got '
                             f'{tensor.device}')


def draw_gaussians(planes: Tensor, centers: Tensor, radii: Tensor,
                   num_planes: int, height: int, width: int) -> Tensor:
    """Draw a Gaussian for each box onto its plane; the maximum stays.

    Args:
        planes: (N,) int64, the plane a box is drawn on; a negative one is
            not drawn.
        centers: (N, 2) int32, x (column) and y (row) of the peak in cells;
            may lie outside of the plane.
        radii: (N,) int64, in cells, >= 0; sigma is ``(2 * radius + 1) / 6``.
        num_planes, height, width: shape of the result.

    Returns:
        (num_planes, height, width) float32 in [0, 1].

    Raises:
        ValueError: on a shape, dtype or device mismatch.
        RuntimeError: on a plane that is not below ``num_planes`` (CPU; on
            CUDA such a box is not drawn).

    Note:
        Deterministic, no host synchronisation, no gradient.
    """
    _check(planes, (centers, 'centers', (2, ), torch.int32),
           (radii, 'radii', (), torch.int64))
    return _draw(planes, centers, radii, num_planes, height, width)


def draw_box_gaussians(planes: Tensor, centers: Tensor, sizes: Tensor,
                       num_planes: int, height: int, width: int,
                       overlap: float = 0.1,
                       min_radius: int = 2) -> Tensor:
    """Draw a Gaussian for each box, as large as the box allows.

    Equals :func:`draw_gaussians` with ``max(min_radius,
    int(gaussian_radius((width, length), overlap)))`` of mmdet3d as the
    radius. Other arguments, result, errors and notes as there.

    Args:
        sizes: (N, 2) float32, width and length in cells, > 0 where a box is
            drawn.
        overlap: of a box with its copy shifted by the radius, in (0, 1).
        min_radius: in cells, >= 0.
    """
    _check(planes, (centers, 'centers', (2, ), torch.int32),
           (sizes, 'sizes', (2, ), torch.float32))
    return _draw_boxes(planes, centers, sizes, num_planes, height, width,
                       float(overlap), min_radius)
