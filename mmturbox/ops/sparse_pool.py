"""Max pooling of sparse tensors, and their dense form."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ._library import define
from .sparse_rulebook import SparseTables, _pack, check_coords


def sparse_max_pool_reference(features: Tensor, table: Tensor,
                              transposed: Tensor,
                              chain: Tensor | None) -> Tensor:
    least = features.new_full((1, features.shape[1]), -math.inf)
    rows = torch.cat([features, least])
    if chain is not None:
        following = chain = torch.cat([chain, chain.new_full((1,), -1)]).long()
        first = rows
        while bool((following >= 0).any()):
            rows = torch.maximum(rows, first[following])
            following = chain[following]
    out = least.expand(table.shape[1], -1).clone()
    for row in table:
        out = torch.maximum(out, rows[row.long()])
    return out.masked_fill_((table < 0).all(0)[:, None], 0)


def sparse_max_pool_grad_reference(features: Tensor, output: Tensor,
                                   grad: Tensor, transposed: Tensor
                                   ) -> Tensor:
    wide = features.dtype
    if wide in (torch.float16, torch.bfloat16):
        wide = torch.float32
    total = torch.zeros_like(features, dtype=wide)
    for row in transposed:
        hit = row >= 0
        row = row.clamp(min=0).long()
        if output.shape[0]:
            hit = hit[:, None] & (output[row] == features)
            total += torch.where(hit, grad[row], 0)
    return total.to(features.dtype)


_pool_grad = define(
    'sparse_max_pool_grad(Tensor features, Tensor output, Tensor grad, '
    'Tensor transposed) -> Tensor', sparse_max_pool_grad_reference,
    fake=lambda features, output, grad, transposed: torch.empty_like(
        features, memory_format=torch.contiguous_format))


def _setup_pool(ctx, inputs, output):
    features, _, transposed, _ = inputs
    ctx.save_for_backward(features, output, transposed)


def _pool_backward(ctx, grad):
    features, output, transposed = ctx.saved_tensors
    return (_pool_grad(features, output, grad.contiguous(), transposed),
            None, None, None)


_pool = define(
    'sparse_max_pool(Tensor features, Tensor table, Tensor transposed, '
    'Tensor? chain) -> Tensor', sparse_max_pool_reference,
    fake=lambda features, table, transposed, chain: features.new_empty(
        (table.shape[1], features.shape[1])),
    setup_context=_setup_pool, backward=_pool_backward)


def sparse_max_pool(features: Tensor, tables: SparseTables) -> Tensor:
    """The channel-wise maximum of the rows that each output row reads.

    Args:
        features: (N, C) of any floating dtype.
        tables: from :func:`sparse_rulebook`, N input and M output rows.

    Returns:
        (M, C); zero in a row that reads nothing.

    Raises:
        ValueError: on a shape or device mismatch.

    Note:
        Deterministic. As in mmcv every row that equals the maximum gets the
        whole gradient. mmcv's maximum starts at zero, this one does not.
    """
    table, transposed = tables.table, tables.transposed
    if transposed is None:
        transposed = table.flip(0)
    if features.dim() != 2 or features.shape[0] != transposed.shape[1]:
        raise ValueError(f'features must be ({transposed.shape[1]}, C) for '
                         f'these tables, got {tuple(features.shape)}')
    if table.device != features.device:
        raise ValueError(f'the tables are on {table.device}, features on '
                         f'{features.device}')
    return _pool(features, table, transposed, tables.chain)


def sparse_to_dense_reference(features: Tensor, coords: Tensor,
                              batch_size: int, shape: list[int]
                              ) -> tuple[Tensor, Tensor]:
    rows, cells = len(coords), math.prod(shape)
    keys = _pack(coords.long(), batch_size, shape)
    owner = torch.full((batch_size * cells + 1,), rows, dtype=torch.int32,
                       device=coords.device)
    owner.scatter_reduce_(
        0, torch.where(keys >= 0, keys, batch_size * cells),
        torch.arange(rows, dtype=torch.int32, device=coords.device), 'amin')
    owner = torch.where(owner == rows, -1, owner)[:-1]
    padded = torch.cat([features, features.new_zeros(1, features.shape[1])])
    dense = padded[owner.long()].view(batch_size, cells, -1).transpose(1, 2)
    return (dense.reshape(batch_size, features.shape[1], *shape).contiguous(),
            owner)


def sparse_to_dense_grad_reference(grad: Tensor, coords: Tensor,
                                   owner: Tensor) -> Tensor:
    batch_size, channels, *shape = grad.shape
    keys = _pack(coords.long(), batch_size, shape)
    flat = grad.reshape(batch_size, channels, -1).transpose(1, 2)
    flat = flat.reshape(-1, channels)
    if flat.shape[0] == 0:
        return grad.new_zeros(len(coords), channels)
    place = keys.clamp(min=0)
    mine = owner[place] == torch.arange(len(coords), device=coords.device)
    return torch.where(((keys >= 0) & mine)[:, None], flat[place], 0)


_dense_grad = define(
    'sparse_to_dense_grad(Tensor grad, Tensor coords, Tensor owner) '
    '-> Tensor', sparse_to_dense_grad_reference,
    fake=lambda grad, coords, owner: grad.new_empty(
        (coords.shape[0], grad.shape[1])))


def _setup_dense(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output[1])
    ctx.mark_non_differentiable(output[1])


def _dense_backward(ctx, grad, _):
    coords, owner = ctx.saved_tensors
    return _dense_grad(grad.contiguous(), coords, owner), None, None, None


_dense = define(
    'sparse_to_dense(Tensor features, Tensor coords, int batch_size, '
    'int[] shape) -> (Tensor, Tensor)', sparse_to_dense_reference,
    fake=lambda features, coords, batch_size, shape: (
        features.new_empty((batch_size, features.shape[1], *shape)),
        coords.new_empty((batch_size * math.prod(shape),))),
    setup_context=_setup_dense, backward=_dense_backward)


def sparse_to_dense(features: Tensor, coords: Tensor, batch_size: int,
                    spatial_shape: Sequence[int]) -> Tensor:
    """Write the rows of a sparse tensor into a grid of zeros.

    Args:
        features: (N, C) of any floating dtype.
        coords: (N, 1 + ndim) int32, rows ``batch, z, y, x``.
        batch_size: number of samples.
        spatial_shape: ndim sizes.

    Returns:
        (batch_size, C, *spatial_shape).

    Raises:
        ValueError: on a shape, dtype or device mismatch.

    Note:
        Deterministic: of equal coordinates the row with the lowest index is
        written and gets the gradient. Rows outside of the grid are left out.
    """
    shape = check_coords(coords, batch_size, spatial_shape)
    if features.dim() != 2 or features.shape[0] != coords.shape[0]:
        raise ValueError(f'features must be ({coords.shape[0]}, C), got '
                         f'{tuple(features.shape)}')
    if coords.device != features.device:
        raise ValueError(f'coords are on {coords.device}, features on '
                         f'{features.device}')
    return _dense(features, coords, batch_size, shape)[0]
