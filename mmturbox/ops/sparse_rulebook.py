"""Which rows of a sparse tensor meet in a sparse convolution.

A sparse tensor is a list of rows ``batch, z, y, x`` (any one to four spatial
axes) and one feature vector a row. Its geometry, held apart from the features,
is a pair of dense tables that say, for every kernel tap and every output row,
which input row is read, and the other way round. Definitions: submanifold
convolution arXiv:1706.01307, strided and transposed ones as in mmcv's
``get_indice_pairs``, with 64-bit keys throughout.

Rows whose coordinates are outside of the grid meet no other row.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ._library import define

_MAX_LEVELS = 8  # that the CUDA kernel finds at once


class SparseTables(NamedTuple):
    """The tables of one sparse convolution from N to M rows, K taps.

    Attributes:
        table: (K, M) int32, the input row that tap k reads for output row m,
            or -1. Taps are numbered with the last axis fastest.
        transposed: (K, N) int32, the output row that input row n reaches by
            tap k, or -1. None where it is ``table`` with its taps reversed
            (submanifold convolution of rows without duplicates).
        chain: (N,) int32, the next higher row with the coordinates of row n,
            or -1; a row read by ``table`` stands for the sum of its chain.
            None where no row is meant to have a successor.
        transposed_chain: (M,) int32, the same for ``transposed``.
        unchained: a tap that reads single rows all the same, or -1.
    """
    table: Tensor
    transposed: Tensor | None = None
    chain: Tensor | None = None
    transposed_chain: Tensor | None = None
    unchained: int = -1

    def inverse(self) -> 'SparseTables':
        """The tables from M rows back to N: an inverse convolution."""
        if self.transposed is None:
            return self._replace(table=self.table.flip(0),
                                 transposed=self.table)
        return SparseTables(self.transposed, self.table,
                            self.transposed_chain, self.chain,
                            self.unchained)


class SparseRulebook(NamedTuple):
    """Output coordinates (M, 1 + ndim) int32, output shape and tables."""
    coords: Tensor
    spatial_shape: tuple[int, ...]
    tables: SparseTables


class SparseSpec(NamedTuple):
    """Geometry of one layer; integers stand for all axes.

    ``kind`` is 'subm' (stride and padding are not used, sizes are odd),
    'conv', or 'transposed' (``output_padding`` as in a dense one).
    """
    kernel: int | Sequence[int] = 3
    stride: int | Sequence[int] = 1
    padding: int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    kind: str = 'conv'
    output_padding: int | Sequence[int] = 0

    def per_axis(self, ndim: int) -> 'SparseSpec':
        """The same with tuples of ``ndim`` integers, checked."""
        fields = {}
        for name in ('kernel', 'stride', 'padding', 'dilation',
                     'output_padding'):
            value = getattr(self, name)
            value = ((int(value),) * ndim if isinstance(value, int) else
                     tuple(int(v) for v in value))
            least = 0 if 'padding' in name else 1
            if len(value) != ndim or min(value) < least:
                raise ValueError(f'{name} must be {ndim} integers >= {least},'
                                 f' got {value}')
            fields[name] = value
        spec = self._replace(**fields)
        if spec.kind not in ('subm', 'conv', 'transposed'):
            raise ValueError("kind must be 'subm', 'conv' or 'transposed', "
                             f'got {spec.kind!r}')
        if spec.kind == 'subm' and any(k % 2 == 0 for k in spec.kernel):
            raise ValueError('a submanifold convolution needs odd kernel '
                             f'sizes, got {spec.kernel}')
        return spec

    def out_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Spatial shape of the output.

        Raises:
            ValueError: if a size would be less than one.
        """
        spec = self.per_axis(len(shape))
        if spec.kind == 'subm':
            return tuple(shape)
        out = []
        for size, k, s, p, d, extra in zip(
                shape, spec.kernel, spec.stride, spec.padding, spec.dilation,
                spec.output_padding, strict=True):
            if spec.kind == 'conv':
                out.append((size + 2 * p - d * (k - 1) - 1) // s + 1)
            else:
                out.append((size - 1) * s - 2 * p + d * (k - 1) + 1 + extra)
        if min(out) < 1:
            raise ValueError(
                f'the output shape {tuple(out)} of a sparse convolution is '
                f'empty: input shape {tuple(shape)}, kernel {spec.kernel}, '
                f'stride {spec.stride}, padding {spec.padding}, dilation '
                f'{spec.dilation}')
        return tuple(out)


# References.


def _pack(coords: Tensor, batch_size: int, shape: Sequence[int]) -> Tensor:
    """(..., 1 + ndim) int64 -> int64 keys, -1 outside of the grid."""
    sizes = torch.tensor([batch_size, *shape], device=coords.device)
    inside = ((coords >= 0) & (coords < sizes)).all(-1)
    key = coords[..., 0]
    for axis, size in enumerate(shape, 1):
        key = key * size + coords[..., axis]
    return torch.where(inside, key, -1)


def _taps(kernel: Sequence[int], device: torch.device) -> Tensor:
    """(K, ndim) int64, the last axis fastest."""
    axes = [torch.arange(k, device=device) for k in kernel]
    return torch.cartesian_prod(*axes).view(-1, len(kernel))


def _lookup(keys: Tensor, order: Tensor, query: Tensor) -> Tensor:
    """The first row that has each key, given keys stably sorted; or -1."""
    if keys.numel() == 0:
        return torch.full_like(query, -1, dtype=torch.int32)
    position = torch.searchsorted(keys, query).clamp_(max=keys.numel() - 1)
    hit = (keys[position] == query) & (query >= 0)
    return torch.where(hit, order[position], -1).int()


def _chain(keys: Tensor, order: Tensor) -> Tensor:
    chain = torch.full_like(order, -1)
    same = (keys[1:] == keys[:-1]) & (keys[1:] >= 0)
    chain[order[:-1]] = torch.where(same, order[1:], -1)
    return chain.int()


def _out_keys(coords: Tensor, tap: Tensor, batch_size: int,
              shape: Sequence[int], out_shape: Sequence[int],
              stride: Sequence[int], padding: Sequence[int],
              dilation: Sequence[int], transposed: bool) -> Tensor:
    """(N, 1 + ndim), (ndim,) -> (N,) keys of the output rows, or -1."""
    coords = coords.long()
    inside = _pack(coords, batch_size, shape) >= 0
    stride, padding, dilation = (
        torch.tensor(v, device=coords.device)
        for v in (stride, padding, dilation))
    if transposed:
        out = coords[:, 1:] * stride - padding + tap * dilation
    else:
        moved = coords[:, 1:] + padding - tap * dilation
        out = moved.div(stride, rounding_mode='floor')
        inside = inside & (out * stride == moved).all(-1)
    keys = _pack(torch.cat([coords[:, :1], out], 1), batch_size, out_shape)
    return torch.where(inside, keys, -1)


def sparse_subm_table_reference(
        coords: Tensor, batch_size: int, shape: list[int], kernel: list[int],
        dilation: list[int], ascending: bool) -> tuple[Tensor, Tensor]:
    coords = coords.long()
    keys, order = _pack(coords, batch_size, shape).sort(stable=True)
    rows = []
    for tap in _taps(kernel, coords.device):
        offset = coords.new_zeros(coords.shape[1])
        for axis, k in enumerate(kernel):
            offset[axis + 1] = (tap[axis] - k // 2) * dilation[axis]
        outside = _pack(coords, batch_size, shape) < 0
        query = _pack(coords + offset, batch_size, shape)
        rows.append(_lookup(keys, order, query.masked_fill(outside, -1)))
    table = torch.stack(rows)
    table[len(rows) // 2] = torch.arange(len(coords), device=coords.device)
    return table, _chain(keys, order)


def sparse_conv_coords_reference(
        coords: Tensor, batch_size: int, shape: list[int],
        out_shapes: list[int], kernel: list[int], stride: list[int],
        padding: list[int], dilation: list[int],
        transposed: bool) -> list[Tensor]:
    ndim, levels = len(shape), []
    for i in range(0, len(kernel), ndim):
        here = slice(i, i + ndim)
        out_shape = out_shapes[here]
        keys = [
            _out_keys(coords, tap, batch_size, shape, out_shape, stride[here],
                      padding[here], dilation[here], transposed)
            for tap in _taps(kernel[here], coords.device)
        ]
        keys = torch.cat(keys).unique()
        keys = keys[keys >= 0]
        columns = []
        for size in reversed(out_shape):
            columns.append(keys % size)
            keys = keys.div(size, rounding_mode='floor')
        coords = torch.stack([keys, *reversed(columns)], 1).int()
        levels.append(coords)
        shape = out_shape
    return levels


def sparse_conv_table_reference(
        coords: Tensor, out_coords: Tensor, batch_size: int,
        shape: list[int], out_shape: list[int], kernel: list[int],
        stride: list[int], padding: list[int], dilation: list[int],
        transposed: bool, ascending: bool) -> tuple[Tensor, Tensor, Tensor]:
    keys, order = _pack(out_coords.long(), batch_size,
                        out_shape).sort(stable=True)
    chain = _chain(*_pack(coords.long(), batch_size, shape).sort(stable=True))
    num_in, num_out = len(coords), len(out_coords)
    down, up = [], []
    for tap in _taps(kernel, coords.device):
        query = _out_keys(coords, tap, batch_size, shape, out_shape, stride,
                          padding, dilation, transposed)
        reached = _lookup(keys, order, query)
        first = reached.new_full((num_out + 1,), num_in)
        first.scatter_reduce_(
            0, torch.where(reached >= 0, reached, num_out).long(),
            torch.arange(num_in, dtype=torch.int32, device=coords.device),
            'amin')
        up.append(reached)
        down.append(torch.where(first == num_in, -1, first)[:num_out])
    return torch.stack(down), torch.stack(up), chain


# Operators. `ascending` promises rows in the grid, sorted and distinct, which
# saves a sort; output coordinates always are so.


def _subm_fake(coords, batch_size, shape, kernel, dilation, ascending):
    rows = coords.shape[0]
    return (coords.new_empty((math.prod(kernel), rows)),
            coords.new_empty((rows,)))


def _coords_fake(coords, batch_size, shape, out_shapes, kernel, stride,
                 padding, dilation, transposed):
    context = torch.library.get_ctx()
    return [
        coords.new_empty((context.new_dynamic_size(), coords.shape[1]))
        for _ in range(len(kernel) // len(shape))
    ]


def _table_fake(coords, out_coords, batch_size, shape, out_shape, kernel,
                stride, padding, dilation, transposed, ascending):
    taps = math.prod(kernel)
    return (coords.new_empty((taps, out_coords.shape[0])),
            coords.new_empty((taps, coords.shape[0])),
            coords.new_empty((coords.shape[0],)))


_subm_table = define(
    'sparse_subm_table(Tensor coords, int batch_size, int[] shape, '
    'int[] kernel, int[] dilation, bool ascending) -> (Tensor, Tensor)',
    sparse_subm_table_reference, _subm_fake)
_conv_coords = define(
    'sparse_conv_coords(Tensor coords, int batch_size, int[] shape, '
    'int[] out_shapes, int[] kernel, int[] stride, int[] padding, '
    'int[] dilation, bool transposed) -> Tensor[]',
    sparse_conv_coords_reference, _coords_fake)
_conv_table = define(
    'sparse_conv_table(Tensor coords, Tensor out_coords, int batch_size, '
    'int[] shape, int[] out_shape, int[] kernel, int[] stride, '
    'int[] padding, int[] dilation, bool transposed, bool ascending) '
    '-> (Tensor, Tensor, Tensor)', sparse_conv_table_reference, _table_fake)


def check_coords(coords: Tensor, batch_size: int,
                 shape: Sequence[int]) -> tuple[int, ...]:
    """Check rows of coordinates and their grid; return the shape.

    Raises:
        ValueError: on a wrong shape, dtype or size, or if the grid has
            2^62 cells or more.
    """
    shape = tuple(int(s) for s in shape)
    if not 1 <= len(shape) <= 4 or min(shape) < 1 or batch_size < 0:
        raise ValueError('a sparse tensor needs one to four positive sizes '
                         f'and a batch size, got {shape} and {batch_size}')
    if (coords.dim() != 2 or coords.shape[1] != len(shape) + 1
            or coords.dtype != torch.int32):
        raise ValueError(
            f'coords must be (N, {len(shape) + 1}) int32 for the spatial '
            f'shape {shape}, got {tuple(coords.shape)} {coords.dtype}')
    if batch_size * math.prod(shape) >= 2**62:
        raise ValueError(f'{batch_size} grids of {shape} have 2^62 cells or '
                         'more')
    if coords.shape[0] >= 2**31:
        raise ValueError(f'at most 2^31 - 1 rows, got {coords.shape[0]}')
    return shape


def _subm_rulebook(coords: Tensor, batch_size: int, shape: tuple[int, ...],
                   spec: SparseSpec, unique: bool,
                   ascending: bool) -> SparseRulebook:
    table, chain = _subm_table(coords, batch_size, shape, spec.kernel,
                               spec.dilation, ascending)
    if coords.device.type == 'cpu':
        unique = not bool((chain >= 0).any())
    if unique:
        return SparseRulebook(coords, shape, SparseTables(table))
    # Every row of a chain has read the chain's first row, which alone
    # therefore gets gradients, and from all of them.
    rows = len(coords)
    follows = torch.zeros(rows + 1, dtype=torch.bool, device=coords.device)
    follows[chain.long()] = True
    transposed = table.flip(0).masked_fill_(follows[:rows], -1)
    middle = table.shape[0] // 2
    transposed[middle] = table[middle]
    return SparseRulebook(
        coords, shape,
        SparseTables(table, transposed, None, chain, middle))


def _conv_rulebook(coords: Tensor, out_coords: Tensor, batch_size: int,
                   shape: tuple[int, ...], spec: SparseSpec, unique: bool,
                   ascending: bool) -> SparseRulebook:
    out_shape = spec.out_shape(shape)
    table, transposed, chain = _conv_table(
        coords, out_coords, batch_size, shape, out_shape, spec.kernel,
        spec.stride, spec.padding, spec.dilation, spec.kind == 'transposed',
        ascending)
    if coords.device.type == 'cpu':
        unique = not bool((chain >= 0).any())
    return SparseRulebook(
        out_coords, out_shape,
        SparseTables(table, transposed, None if unique else chain))


def _steps(specs: list[SparseSpec]) -> list[list[SparseSpec]]:
    """Runs of strided layers whose outputs are found by one call."""
    runs, joined = [], False
    for spec in specs:
        if spec.kind == 'subm':
            continue
        simple = spec.kind == 'conv' and max(spec.dilation) == 1
        if simple and joined and len(runs[-1]) < _MAX_LEVELS:
            runs[-1].append(spec)
        else:
            runs.append([spec])
        joined = simple
    return runs


def _all_coords(coords: Tensor, batch_size: int, shape: tuple[int, ...],
                specs: list[SparseSpec]) -> list[Tensor]:
    """Output coordinates of each strided layer, in order."""
    found = []
    for run in _steps(specs):
        flat = {name: [v for spec in run for v in getattr(spec, name)]
                for name in ('kernel', 'stride', 'padding', 'dilation')}
        shapes, here = [], shape
        for spec in run:
            here = spec.out_shape(here)
            shapes.extend(here)
        levels = _conv_coords(coords, batch_size, shape, shapes,
                              flat['kernel'], flat['stride'],
                              flat['padding'], flat['dilation'],
                              run[0].kind == 'transposed')
        found.extend(levels)
        coords, shape = levels[-1], here
    return found


def sparse_rulebooks(coords: Tensor,
                     batch_size: int,
                     spatial_shape: Sequence[int],
                     specs: Sequence[SparseSpec],
                     unique: bool = False) -> list[SparseRulebook]:
    """Rulebooks of all layers of a sparse encoder.

    A strided layer feeds what follows it; submanifold layers work on the
    rows of the strided layer before them (or on ``coords``).

    Args:
        coords: (N, 1 + ndim) int32, rows ``batch, z, y, x`` (or any other
            order of axes, if ``spatial_shape`` has the same).
        batch_size: number of samples.
        spatial_shape: ndim sizes.
        specs: geometry of the layers, in order.
        unique: no two rows of ``coords`` are equal. Saves work on CUDA,
            where finding out would have to wait for the device; gradients
            of duplicates are wrong if it does not hold. Ignored on the CPU.

    Returns:
        One rulebook a spec. Output rows of strided layers are sorted by
        batch, z, y, x; those of submanifold layers are the input rows.

    Raises:
        ValueError: on a shape or dtype mismatch, an even kernel size of a
            submanifold layer, an empty output shape, 2^62 or more cells.

    Note:
        Deterministic. Of equal rows in a submanifold layer each is an
        output of its own, its middle tap reads the row itself, and every
        other tap reads the row with the lowest index at the place; in a
        strided layer equal rows are summed. On CUDA the host waits once for
        all counts of strided layers (once more for each transposed or
        dilated one), and not at all without strided layers.
    """
    shape = check_coords(coords, batch_size, spatial_shape)
    specs = [spec.per_axis(len(shape)) for spec in specs]
    here = shape
    for spec in specs:
        here = spec.out_shape(here)
        check_coords(coords, batch_size, here)
    levels = iter(_all_coords(coords, batch_size, shape, specs))
    rulebooks, ascending = [], False
    for spec in specs:
        if spec.kind == 'subm':
            book = _subm_rulebook(coords, batch_size, shape, spec, unique,
                                  ascending)
        else:
            book = _conv_rulebook(coords, next(levels), batch_size, shape,
                                  spec, unique, ascending)
            coords, shape = book.coords, book.spatial_shape
            unique = ascending = True
        rulebooks.append(book)
    return rulebooks


def sparse_rulebook(coords: Tensor,
                    batch_size: int,
                    spatial_shape: Sequence[int],
                    kernel: int | Sequence[int] = 3,
                    stride: int | Sequence[int] = 1,
                    padding: int | Sequence[int] = 0,
                    dilation: int | Sequence[int] = 1,
                    kind: str = 'conv',
                    output_padding: int | Sequence[int] = 0,
                    unique: bool = False) -> SparseRulebook:
    """Rulebook of one layer; see :func:`sparse_rulebooks`.

    An inverse convolution takes ``tables.inverse()`` of the layer that it
    undoes, and the coordinates of that layer's input.
    """
    spec = SparseSpec(kernel, stride, padding, dilation, kind,
                      output_padding)
    return sparse_rulebooks(coords, batch_size, spatial_shape, [spec],
                            unique)[0]
