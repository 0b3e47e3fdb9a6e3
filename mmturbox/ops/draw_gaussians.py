"""Heat maps with one Gaussian a box, drawn for the whole batch at once.

Definition: mmdet3d's ``draw_heatmap_gaussian`` called for each box. Each
value is the float64 Gaussian rounded to float32, so that results do not
depend on the backend (the float64 ``exp`` of numpy, torch and libm part in the
last bit only, which the rounding removes).
"""

import torch
from torch import Tensor

from ._library import define

# Boxes drawn together by the reference: bounds its memory to a few
# dense maps of this many planes.
_CHUNK = 256


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


_draw = define(
    'draw_gaussians(Tensor planes, Tensor centers, Tensor radii, '
    'int num_planes, int height, int width) -> Tensor',
    draw_gaussians_reference,
    fake=lambda planes, centers, radii, num_planes, height, width: planes.
    new_empty((num_planes, height, width), dtype=torch.float32))


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
        ValueError: on a shape or dtype mismatch.

    Note:
        Deterministic, no host synchronisation, no gradient.
    """
    wanted = (((planes, 'planes', ()), torch.int64),
              ((centers, 'centers', (2, )), torch.int32),
              ((radii, 'radii', ()), torch.int64))
    for (tensor, name, tail), dtype in wanted:
        if tensor.shape != (len(planes), *tail) or tensor.dtype != dtype:
            raise ValueError(
                f'{name} must be {dtype} of shape {(len(planes), *tail)}, '
                f'got {tensor.dtype} of shape {tuple(tensor.shape)}')
    return _draw(planes, centers, radii, num_planes, height, width)
