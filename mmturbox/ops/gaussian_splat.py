"""Splatting of 3D Gaussians onto a voxel grid.

Definition: the additive head of GaussianFormer (arXiv:2405.17429) and the
probabilistic one of GaussianFormer-2 (arXiv:2412.04384). A Gaussian with mean
m and precision (inverse covariance) P has at the centre p of a voxel the
weight e = exp(-(m - p)' P (m - p) / 2). It touches the voxels that are, along
every axis, at most its radius from the voxel of its mean (truncated towards
zero). Frame: that of the grid, metres. Voxels are numbered
(x * Y + y) * Z + z.

No list of pairs is made: voxels are taken tile by tile, and a tile asks which
Gaussians reach it, in ascending order.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ._library import define

_EPSILON = 1e-9
_MOMENT_PAIRS = ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 2))


def _centres(lower: list[float], size: float, grid: list[int],
             like: Tensor) -> list[Tensor]:
    return [
        like.new_tensor(low) + (torch.arange(
            cells, device=like.device, dtype=like.dtype) + 0.5) * size
        for low, cells in zip(lower, grid, strict=True)
    ]


def _distance(precisions: Tensor, d: Sequence[Tensor]) -> Tensor:
    """Minus the exponent, from (N, 6) and three broadcast offsets."""
    xx, yy, zz, xy, yz, xz = precisions.unbind(-1)
    xx, yy, zz, xy, yz, xz = (
        p.view(*p.shape, 1, 1) for p in (xx, yy, zz, xy, yz, xz))
    x, y, z = d
    a = 0.5 * (xx * x * x + yy * y * y + zz * z * z)
    return (a + xy * x * y + yz * y * z + xz * x * z).clamp(min=-80)


def _slabs(means: Tensor, precisions: Tensor, radii: Tensor,
           lower: list[float], size: float, grid: list[int]
           ) -> Iterator[tuple[int, int, Tensor, Tensor, tuple]]:
    """Yield sample, x, the Gaussians that reach the slab, their weights
    (n, Y, Z) and their offsets."""
    centres = _centres(lower, size, grid, means)
    at = (means - means.new_tensor(lower)) / size
    finite = ((at.abs() < 1e9).all(-1)) & (radii >= 0)
    voxel = torch.where(finite[..., None], at, 0).long()
    index = [torch.arange(cells, device=means.device) for cells in grid]
    for b in range(len(means)):
        for x in range(grid[0]):
            near = (voxel[b, :, 0] - x).abs() <= radii[b]
            g = (near & finite[b]).nonzero().squeeze(1)
            mean, radius = means[b, g], radii[b, g].view(-1, 1, 1)
            d = (mean[:, 0].view(-1, 1, 1) - centres[0][x],
                 mean[:, 1].view(-1, 1, 1) - centres[1][:, None],
                 mean[:, 2].view(-1, 1, 1) - centres[2])
            inside = (voxel[b, g, 1].view(-1, 1, 1) -
                      index[1][:, None]).abs() <= radius
            inside = inside & ((voxel[b, g, 2].view(-1, 1, 1) -
                                index[2]).abs() <= radius)
            e = torch.exp(-_distance(precisions[b, g], d))
            yield b, x, g, torch.where(inside, e, 0), d


def gaussian_splat_reference(means: Tensor, table: Tensor, precisions: Tensor,
                             radii: Tensor, lower: list[float], size: float,
                             grid: list[int],
                             product: bool) -> tuple[Tensor, Tensor]:
    B, slab = len(means), grid[1] * grid[2]
    voxels = grid[0] * slab
    sums = table.new_zeros(B, voxels, table.shape[2])
    rest = table.new_ones(B, voxels if product else 0)
    for b, x, g, e, _ in _slabs(means, precisions, radii, lower, size, grid):
        part = slice(x * slab, (x + 1) * slab)
        sums[b, part] = e.flatten(1).t() @ table[b, g]
        if product:
            rest[b, part] = (1 - e).flatten(1).prod(0)
    return sums, rest


def gaussian_splat_backward_reference(
        grad: Tensor, grad_rest: Tensor, rest: Tensor, means: Tensor,
        table: Tensor, precisions: Tensor, radii: Tensor, lower: list[float],
        size: float, grid: list[int]) -> tuple[Tensor, Tensor]:
    slab = grid[1] * grid[2]
    grad_table = torch.zeros_like(table)
    moments = means.new_zeros(*means.shape[:2], 9)
    for b, x, g, e, d in _slabs(means, precisions, radii, lower, size, grid):
        part = slice(x * slab, (x + 1) * slab)
        grad_table[b, g] += e.flatten(1) @ grad[b, part]
        grad_e = (table[b, g] @ grad[b, part].t()).view_as(e)
        if rest.shape[1]:
            lost = (grad_rest * rest)[b, part].view(e.shape[1:])
            grad_e = grad_e - lost / (1 - e + _EPSILON)
        t = grad_e * e
        products = [*d, *(d[i] * d[j] for i, j in _MOMENT_PAIRS)]
        moments[b, g] += torch.stack([(t * p).sum((1, 2)) for p in products],
                                     1)
    return grad_table, moments


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:4], output[1])
    ctx.place = inputs[4:7]


def _backward(ctx, grad: Tensor | None, grad_rest: Tensor | None):
    means, table, precisions, radii, rest = ctx.saved_tensors
    grad_table, moments = _splat_backward(grad, grad_rest, rest, means, table,
                                          precisions, radii, *ctx.place)
    xx, yy, zz, xy, yz, xz = precisions.unbind(-1)
    matrix = torch.stack((xx, xy, xz, xy, yy, yz, xz, yz, zz), -1)
    matrix = matrix.unflatten(-1, (3, 3))
    grad_means = -(matrix @ moments[..., :3, None]).squeeze(-1)
    factor = moments.new_tensor([-0.5] * 3 + [-1.0] * 3)
    return (grad_means, grad_table, moments[..., 3:] * factor, None, None,
            None, None, None)


def _fake(means, table, precisions, radii, lower, size, grid, product):
    voxels = grid[0] * grid[1] * grid[2]
    return (table.new_empty(len(table), voxels, table.shape[2]),
            table.new_empty(len(table), voxels if product else 0))


_splat_backward = define(
    'gaussian_splat_backward(Tensor grad, Tensor grad_rest, Tensor rest, '
    'Tensor means, Tensor table, Tensor precisions, Tensor radii, '
    'float[] lower, float size, int[] grid) '
    '-> (Tensor grad_table, Tensor moments)',
    gaussian_splat_backward_reference,
    fake=lambda grad, grad_rest, rest, means, table, precisions, radii,
    lower, size, grid: (table.new_empty(table.shape),
                        means.new_empty(*means.shape[:2], 9)))
_splat = define(
    'gaussian_splat(Tensor means, Tensor table, Tensor precisions, '
    'Tensor radii, float[] lower, float size, int[] grid, bool product) '
    '-> (Tensor sums, Tensor rest)',
    gaussian_splat_reference,
    fake=_fake,
    setup_context=_setup,
    backward=_backward)


def gaussian_radii(scales: Tensor, multiplier: float,
                   voxel_size: float) -> Tensor:
    """How many voxels a Gaussian reaches from that of its mean.

    Args:
        scales: (..., 3) standard deviations in metres.
        multiplier: reach in standard deviations of the longest axis.
        voxel_size: edge of a voxel in metres.

    Returns:
        (...) int32.
    """
    return torch.ceil(scales.amax(-1) * multiplier / voxel_size).int()


def gaussian_precisions(scales: Tensor, rotations: Tensor) -> Tensor:
    """The inverse covariance of Gaussians, without inverting a matrix.

    The covariance is R' diag(scales^2) R with R the rotation matrix of the
    quaternion, the transpose of the usual form, as in GaussianFormer.

    Args:
        scales: (..., 3) standard deviations in metres.
        rotations: (..., 4) quaternions w, x, y, z of any length but zero.

    Returns:
        (..., 6): xx, yy, zz, xy, yz, xz.
    """
    w, x, y, z = (rotations /
                  rotations.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = torch.stack(
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
         2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
         2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        -1).unflatten(-1, (3, 3)) / scales[..., None]
    i, j = zip(*_MOMENT_PAIRS, strict=True)
    return (rows[..., list(i)] * rows[..., list(j)]).sum(-2)


def gaussian_splat(means: Tensor, opacities: Tensor, semantics: Tensor,
                   precisions: Tensor, radii: Tensor, lower: Sequence[float],
                   voxel_size: float, grid: Sequence[int]) -> Tensor:
    """Sum opacity times semantics times weight over the Gaussians that touch
    each voxel.

    Args:
        means: (B, N, 3) in metres.
        opacities: (B, N).
        semantics: (B, N, C).
        precisions: (B, N, 6) xx, yy, zz, xy, yz, xz of the inverse
            covariance in 1 / m^2, see :func:`gaussian_precisions`.
        radii: (B, N) integer, reach in voxels, see :func:`gaussian_radii`;
            below zero for a Gaussian to be left out.
        lower: x, y, z of the grid's lower corner in metres.
        voxel_size: edge of a voxel in metres.
        grid: number of voxels X, Y, Z.

    Returns:
        (B, X * Y * Z, C) in the dtype of ``semantics``; computed in float32
        for half precision.

    Raises:
        ValueError: on a shape, dtype or device mismatch.

    Note:
        Deterministic, forward and backward, without atomics. Gradients for
        the four floating inputs. Nothing is read back to the host. A Gaussian
        that reaches the whole grid is best left out here and added by
        :func:`gaussian_splat_dense`.
    """
    place = _check(means, opacities, semantics, precisions, radii, lower,
                   voxel_size, grid)
    means, opacities, table, precisions = _compute(means, opacities,
                                                   semantics, precisions)
    sums, _ = _splat(means, opacities[..., None] * table, precisions,
                     radii.int(), *place, False)
    return sums.to(semantics.dtype)


def gaussian_splat_dense(out: Tensor, means: Tensor, opacities: Tensor,
                         semantics: Tensor, precisions: Tensor,
                         lower: Sequence[float], voxel_size: float,
                         grid: Sequence[int]) -> Tensor:
    """``out`` plus the sums of few Gaussians that reach every voxel.

    For GaussianFormer's "empty" Gaussian: one product of matrices instead
    of one more pair for each voxel.

    Args:
        out: (B, X * Y * Z, C) of :func:`gaussian_splat`.
        Others as there, of a few Gaussians each.

    Returns:
        (B, X * Y * Z, C) in the dtype of ``out``.
    """
    radii = torch.zeros(means.shape[:2], dtype=torch.int32,
                        device=means.device)
    lower, size, grid = _check(means, opacities, semantics, precisions, radii,
                               lower, voxel_size, grid)
    means, opacities, table, precisions = _compute(means, opacities,
                                                   semantics, precisions)
    x, y, z = _centres(lower, size, grid, means)
    d = (means[..., 0, None, None, None] - x[:, None, None],
         means[..., 1, None, None, None] - y[:, None],
         means[..., 2, None, None, None] - z)
    weight = torch.exp(-_distance(precisions[..., None, :], d))
    sums = torch.baddbmm(
        out.to(table.dtype), weight.flatten(2).transpose(1, 2),
        opacities[..., None] * table)
    return sums.to(out.dtype)


def gaussian_splat_probabilistic(
        means: Tensor, opacities: Tensor, semantics: Tensor,
        precisions: Tensor, radii: Tensor, lower: Sequence[float],
        voxel_size: float,
        grid: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Mixture semantics, occupancy and density of each voxel.

    With the normal density (2 pi)^(-3/2) |P|^(1/2) e times the opacity as
    the share of a Gaussian: semantics are the mean by share, occupancy is one
    minus the product of 1 - e (opacity plays no part), density is the sum of
    e.

    Args and errors as :func:`gaussian_splat`.

    Returns:
        semantics (B, X * Y * Z, C), where shares sum to 1e-9 or less
        1 / (C - 1) for all classes but the last, which gets zero; occupancy
        and density, both (B, X * Y * Z). In the dtype of ``semantics``.

    Note:
        As :func:`gaussian_splat`.
    """
    place = _check(means, opacities, semantics, precisions, radii, lower,
                   voxel_size, grid)
    dtype, classes = semantics.dtype, semantics.shape[2]
    means, opacities, semantics, precisions = _compute(
        means, opacities, semantics, precisions)
    xx, yy, zz, xy, yz, xz = precisions.unbind(-1)
    determinant = (xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) +
                   xz * (xy * yz - yy * xz))
    tiny = torch.finfo(means.dtype).tiny
    share = opacities * (determinant.clamp(min=tiny).sqrt() *
                         (2 * math.pi)**-1.5)
    table = torch.cat((share[..., None] * semantics, share[..., None],
                       torch.ones_like(share)[..., None]), 2)
    sums, rest = _splat(means, table, precisions, radii.int(), *place,
                        True)
    total = sums[..., classes, None]
    known = total > _EPSILON
    default = sums.new_full((classes, ), 1 / max(classes - 1, 1))
    default[-1:] = 0
    mixed = torch.where(known, sums[..., :classes] /
                        torch.where(known, total, 1), default)
    return mixed.to(dtype), (1 - rest).to(dtype), sums[..., -1].to(dtype)


def _compute(*tensors: Tensor) -> list[Tensor]:
    """All in one dtype, float32 for half precision."""
    wide = any(t.dtype == torch.float64 for t in tensors)
    return [t.to(torch.float64 if wide else torch.float32) for t in tensors]


def _check(means: Tensor, opacities: Tensor, semantics: Tensor,
           precisions: Tensor, radii: Tensor, lower: Sequence[float],
           voxel_size: float,
           grid: Sequence[int]) -> tuple[list[float], float, list[int]]:
    if means.dim() != 3 or means.shape[2] != 3:
        raise ValueError('means must have shape (B, N, 3), got '
                         f'{tuple(means.shape)}')
    B, N = means.shape[:2]
    for name, tensor, shape in (('opacities', opacities, (B, N)),
                                ('semantics', semantics,
                                 (B, N, *semantics.shape[2:3])),
                                ('precisions', precisions, (B, N, 6)),
                                ('radii', radii, (B, N))):
        if tensor.shape != shape:
            raise ValueError(f'{name} must have shape {shape} for means of '
                             f'shape {tuple(means.shape)}, got '
                             f'{tuple(tensor.shape)}')
        if tensor.device != means.device:
            raise ValueError(f'{name} must be on {means.device} like means, '
                             f'got {tensor.device}')
    if semantics.dim() != 3:
        raise ValueError('semantics must have shape (B, N, C), got '
                         f'{tuple(semantics.shape)}')
    if radii.is_floating_point():
        raise ValueError(f'radii must be integers, got {radii.dtype}')
    if len(lower) != 3 or len(grid) != 3 or min(grid) < 1 or voxel_size <= 0:
        raise ValueError(
            'lower and grid must have three entries, grid positive ones, and '
            f'voxel_size must be positive, got {list(lower)}, {list(grid)} '
            f'and {voxel_size}')
    return (list(map(float, lower)), float(voxel_size),
            list(map(int, grid)))
