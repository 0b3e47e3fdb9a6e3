"""Attention to maps against mmcv's formula, gathers and ``grid_sample``.

Shapes: BEVFormer-base (two maps of 200 x 200 cells; six cameras, four
levels, a quarter of its 40,000 queries), MapTR, and Sparse4D v3 with 900
anchors.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from harness import Case, Skipped
from torch import Tensor

from mmturbox.ops import (
    deformable_aggregation,
    deformable_aggregation_split,
    geometry_kernel_attn_ragged,
    mmcv_ext,
    ms_deform_attn,
    ms_deform_attn_ragged,
    pack_hits,
)

YAWS = (0, 55, 110, 180, 250, 305)


def _stock_attention() -> Callable | None:
    mmcv_ext.install()
    try:
        from mmcv.ops import multi_scale_deform_attn as stock
    except ImportError:
        return None
    return stock.multi_scale_deformable_attn_pytorch


def _levels(sizes: list[tuple[int, int]], device: str) -> tuple:
    shapes = torch.tensor(sizes, device=device)
    cells = shapes.prod(1)
    return shapes, cells.cumsum(0) - cells, int(cells.sum())


def _seen(side: int, heights: int, device: str) -> tuple[Tensor, Tensor]:
    """(Q, 6) which cells of a BEV grid cameras round the car see, and
    (Q, 6, heights, 2) where in the image: 70 degrees wide."""
    line = torch.linspace(-51, 51, side)
    y, x = torch.meshgrid(line, line, indexing='ij')
    turn = torch.atan2(y, x).flatten()[:, None] - torch.tensor(
        YAWS).deg2rad()
    turn = torch.atan2(turn.sin(), turn.cos())
    far = (x.square() + y.square()).sqrt().flatten().clamp(min=2)
    column = 0.5 + turn.tan() / (2 * math.tan(math.radians(35)))
    tall = torch.linspace(-1.5, 2, heights)
    row = 0.5 + 1.3 * tall / far[:, None]
    at = torch.stack((column[:, :, None].expand(-1, -1, heights),
                      row[:, None].expand(-1, 6, -1)), -1)
    return (turn.abs() < math.radians(35)).to(device), at.to(device)


def _cases_of(name: str, stock: Callable, turbo: Callable,
              leaves: tuple[Tensor, ...], close: bool = True,
              both: bool = True) -> Iterator[Case]:
    """Rows forward and forward+backward of functions of ``leaves``."""
    grad = torch.randn_like(turbo(*leaves))

    def backward(function: Callable) -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(*leaves), leaves, grad)

    def check() -> None:
        torch.testing.assert_close(turbo(*leaves), stock(*leaves),
                                   rtol=1e-3, atol=1e-3)

    if both:
        yield Case(f'{name} forward', lambda: stock(*leaves),
                   lambda: turbo(*leaves), 6.0, check if close else None)
    yield Case(f'{name} forward+backward', lambda: backward(stock),
               lambda: backward(turbo), 6.0, check if close else None)


def _temporal(device: str, stock: Callable) -> Iterator[Case]:
    shapes, starts, cells = _levels([(200, 200)], device)
    draw = torch.Generator().manual_seed(0)
    value = torch.randn(2, cells, 8, 32, generator=draw)
    line = (torch.arange(200) + 0.5) / 200
    y, x = torch.meshgrid(line, line, indexing='ij')
    grid = torch.stack((x, y), -1).view(1, -1, 1, 1, 1, 2)
    shift = torch.randn(2, cells, 8, 1, 4, 2, generator=draw) * 2 / 200
    logits = torch.randn(2, cells, 8, 1, 4, generator=draw)
    leaves = tuple(t.to(device).requires_grad_()
                   for t in (value, grid + shift, logits))

    def theirs(value, locations, logits):
        weights = logits.flatten(3).softmax(3).view(logits.shape)
        return stock(value, shapes, locations, weights)

    yield from _cases_of(
        'MSDeformAttn', theirs,
        lambda value, locations, logits: ms_deform_attn(
            value, shapes, starts, locations, logits, True), leaves)


def _hits(device: str, heights: int) -> tuple:
    """Hits of 10,000 queries, where they are seen, and BEVFormer's way: the
    hits of each camera padded to the longest list."""
    mask, at = _seen(100, heights, device)
    query, image, offsets = pack_hits(mask)
    order = image.argsort(stable=True)
    counts = mask.sum(0)
    longest = int(counts.max())
    rank = torch.arange(len(order), device=device) - (
        counts.cumsum(0) - counts)[image[order]]
    place = torch.empty_like(image)
    place[order] = image[order] * longest + rank
    number = mask.sum(1, keepdim=True).clamp(min=1)
    return query, image, offsets, at[query, image], place, longest, number


def _pad(hits: Tensor, place: Tensor, longest: int) -> Tensor:
    """(T, ...) -> (6, longest, ...)."""
    padded = hits.new_zeros(6 * longest, *hits.shape[1:])
    return padded.index_copy(0, place, hits).unflatten(0, (6, longest))


def _average(found: Tensor, place: Tensor, query: Tensor,
             number: Tensor) -> Tensor:
    """(6, longest, C) -> (N, C) means over what each query has hit."""
    out = found.new_zeros(len(number), found.shape[2])
    return out.index_add(0, query, found.flatten(0, 1)[place]) / number


def _cameras(device: str, stock: Callable) -> Iterator[Case]:
    shapes, starts, cells = _levels(
        [(116, 200), (58, 100), (29, 50), (15, 25)], device)
    query, image, offsets, at, place, longest, number = _hits(device, 4)
    draw = torch.Generator().manual_seed(0)
    shift = torch.randn(len(query), 8, 4, 2, 4, 2, generator=draw) * 3
    shift = shift.to(device) / shapes.flip(1)[:, None, None]
    locations = (at[:, None, None, None] + shift).flatten(3, 4)
    value = torch.randn(6, cells, 8, 32, generator=draw)
    logits = torch.randn(len(query), 8, 4, 8, generator=draw)
    leaves = tuple(t.to(device).requires_grad_()
                   for t in (value, locations, logits))

    def theirs(value, locations, logits):
        weights = logits.flatten(2).softmax(2).view(logits.shape)
        found = stock(value, shapes, _pad(locations, place, longest),
                      _pad(weights, place, longest))
        return _average(found, place, query, number)

    yield from _cases_of(
        'MSDeformAttn, camera hits,', theirs,
        lambda value, locations, logits: ms_deform_attn_ragged(
            value, shapes, starts, locations, logits, image, offsets, True),
        leaves)


def _kernel(device: str) -> Iterator[Case]:
    shapes, starts, cells = _levels([(15, 25)], device)
    query, image, offsets, at, place, longest, number = _hits(device, 4)
    draw = torch.Generator().manual_seed(0)
    value = torch.randn(6, cells, 4, 64, generator=draw)
    logits = torch.randn(len(query), 4, 1, 15, generator=draw)
    leaves = tuple(t.to(device).requires_grad_() for t in (value, logits))
    around = torch.cartesian_prod(torch.arange(-2, 3),
                                  torch.arange(-1, 2)).to(device)
    head = torch.arange(4, device=device)[:, None]
    camera = torch.arange(6, device=device)[:, None, None, None]

    def theirs(value, logits):
        near = (at[:, :, None] * shapes[0].flip(0) + around).round().long()
        cell = (near[..., 0].clamp(0, 24) + near[..., 1].clamp(0, 14) * 25)
        weights = _pad(logits.flatten(2).softmax(2), place, longest)
        read = value[camera, _pad(cell, place, longest), head]
        found = (read * weights[..., None]).sum(3).flatten(2)
        return _average(found, place, query, number)

    yield from _cases_of(
        'geometric kernel attention, camera hits,', theirs,
        lambda value, logits: geometry_kernel_attn_ragged(
            value, shapes, starts, at, logits, image, offsets, (3, 5)),
        leaves)


class _Sparse4D:
    """Inputs of Sparse4D's aggregation; a point is in a fifth of the
    cameras, far from the others' borders."""

    sizes = ((64, 176), (32, 88), (16, 44), (8, 22))

    def __init__(self, device: str) -> None:
        draw = torch.Generator().manual_seed(0)
        shapes = torch.tensor(self.sizes).expand(6, 4, 2)
        cells = shapes.prod(2).flatten()
        self.shapes = shapes.to(device)
        self.starts = (cells.cumsum(0) - cells).view(6, 4).to(device)
        feats = torch.randn(1, int(cells.sum()), 256, generator=draw)
        centre = torch.rand(1, 900, 1, 1, 2, generator=draw) * 0.7 + 0.15
        near = torch.randn(1, 900, 13, 1, 2, generator=draw).clamp(-3, 3)
        camera = torch.randint(6, (1, 900, 1, 1), generator=draw)
        twice = torch.rand(1, 900, 1, 1, generator=draw) < 0.25
        index = torch.arange(6)
        seen = (index == camera) | (twice & (index == (camera + 1) % 6))
        locations = centre + near * 0.04 + torch.where(seen, 0., 3.)[..., None]
        self.leaves = tuple(
            t.to(device).requires_grad_()
            for t in (feats, locations,
                      torch.randn(1, 900, 4, 13, 8, generator=draw),
                      torch.randn(1, 6, 4, 13, 8, generator=draw)))

    @staticmethod
    def weights(anchors: Tensor, cameras: Tensor) -> Tensor:
        """(B, N, K, M, L, G) softmax of the logits' sums."""
        logits = anchors[:, :, None] + cameras[:, None]
        logits = logits.permute(0, 1, 4, 2, 3, 5)
        return logits.flatten(2, 4).softmax(2).view(logits.shape)

    def stock(self, feats: Tensor, locations: Tensor,
              weights: Tensor) -> Tensor:
        maps = feats.view(6, -1, 256)
        grid = locations[0].permute(2, 0, 1, 3) * 2 - 1
        reads = []
        for (height, width), start in zip(
                self.sizes, self.starts[0].tolist(), strict=True):
            level = maps[:, start:start + height * width].transpose(1, 2)
            reads.append(F.grid_sample(level.reshape(6, 256, height, width),
                                       grid, align_corners=False))
        # (M, L, C, N, K) -> (N, K, M, L, G, C / G)
        reads = torch.stack(reads, 1).permute(3, 4, 0, 1, 2)
        reads = reads.unflatten(4, (8, -1))
        return (reads * weights[0][..., None]).sum((1, 2, 3)).view(1, -1, 256)


def _aggregation(device: str) -> Iterator[Case]:
    s = _Sparse4D(device)
    feats, locations, anchors, cameras = s.leaves
    weights = s.weights(anchors, cameras).detach().requires_grad_()
    yield from _cases_of(
        'deformable aggregation', s.stock,
        lambda f, at, w: deformable_aggregation(f, s.shapes, s.starts, at, w),
        (feats, locations, weights))
    yield from _cases_of(
        'deformable aggregation, split logits,',
        lambda f, at, a, c: s.stock(f, at, s.weights(a, c)),
        lambda f, at, a, c: deformable_aggregation_split(
            f, s.shapes, s.starts, at, a, c), s.leaves, both=False)


def cases(device: str = 'cpu') -> Iterator[Case | Skipped]:
    stock = _stock_attention()
    if stock is None:
        yield Skipped('MSDeformAttn', 'needs mmcv')
    else:
        yield from _temporal(device, stock)
        yield from _cameras(device, stock)
    yield from _kernel(device)
    yield from _aggregation(device)
