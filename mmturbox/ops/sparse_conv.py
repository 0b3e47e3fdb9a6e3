"""Sparse convolution over the tables of a rulebook.

``out[m] = bias + sum over taps k of rows[table[k, m]] @ weight[k]``, which is
submanifold, strided, transposed or inverse convolution according to the
tables (:mod:`.sparse_rulebook`).
"""

import torch
from torch import Tensor

from ._library import define
from .sparse_rulebook import SparseTables


def _wide(dtype: torch.dtype) -> torch.dtype:
    half = dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half else dtype


def _gatherable(rows: Tensor, chain: Tensor | None) -> Tensor:
    """Rows summed over their chains, in the order of rows; a zero row last,
    which index -1 reads."""
    rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    if chain is None:
        return rows
    chain = torch.cat([chain, chain.new_full((1,), -1)]).long()
    total, following = rows.clone(), chain
    while bool((following >= 0).any()):
        total += rows[following]
        following = chain[following]
    return total


def sparse_conv_reference(features: Tensor, weight: Tensor,
                          bias: Tensor | None, table: Tensor,
                          transposed: Tensor | None, chain: Tensor | None,
                          transposed_chain: Tensor | None, unchained: int,
                          relu: bool) -> Tensor:
    wide = _wide(features.dtype)
    rows = _gatherable(features.to(wide), None)
    chained = rows if chain is None else _gatherable(features.to(wide), chain)
    out = rows.new_zeros(table.shape[1], weight.shape[2])
    for k in range(table.shape[0]):
        source = rows if k == unchained else chained
        out += source[table[k].long()] @ weight[k].to(wide)
    if bias is not None:
        out += bias.to(wide)
    return (out.relu_() if relu else out).to(features.dtype)


def sparse_conv_weight_grad_reference(features: Tensor, grad: Tensor,
                                      table: Tensor, chain: Tensor | None,
                                      unchained: int) -> Tensor:
    wide = _wide(features.dtype)
    rows = _gatherable(features.to(wide), None)
    chained = rows if chain is None else _gatherable(features.to(wide), chain)
    out = [
        (rows if k == unchained else chained)[table[k].long()].t()
        @ grad.to(wide) for k in range(table.shape[0])
    ]
    return torch.stack(out).to(features.dtype)


_weight_grad = define(
    'sparse_conv_weight_grad(Tensor features, Tensor grad, Tensor table, '
    'Tensor? chain, int unchained) -> Tensor',
    sparse_conv_weight_grad_reference,
    fake=lambda features, grad, table, chain, unchained: features.new_empty(
        (table.shape[0], features.shape[1], grad.shape[1])))


def _setup(ctx, inputs, output):
    (features, weight, _, table, transposed, chain, transposed_chain,
     unchained, relu) = inputs
    ctx.save_for_backward(features, weight, table, transposed, chain,
                          transposed_chain, output if relu else None)
    ctx.unchained = unchained


def _backward(ctx, grad):
    (features, weight, table, transposed, chain, transposed_chain,
     output) = ctx.saved_tensors
    grad = grad.contiguous()
    if output is not None:
        grad = grad * (output > 0)
    grads = [None] * 9
    if ctx.needs_input_grad[0]:
        back = weight.transpose(1, 2)
        if transposed is None:
            back = back.flip(0)
        grads[0] = _conv(grad, back.contiguous(), None,
                         table if transposed is None else transposed, None,
                         transposed_chain, None, ctx.unchained, False)
    if ctx.needs_input_grad[1]:
        grads[1] = _weight_grad(features, grad, table, chain, ctx.unchained)
    if ctx.needs_input_grad[2]:
        grads[2] = grad.sum(0)
    return tuple(grads)


_conv = define(
    'sparse_conv(Tensor features, Tensor weight, Tensor? bias, Tensor table, '
    'Tensor? transposed, Tensor? chain, Tensor? transposed_chain, '
    'int unchained, bool relu) -> Tensor',
    sparse_conv_reference,
    fake=lambda features, weight, bias, table, *_: features.new_empty(
        (table.shape[1], weight.shape[2])),
    setup_context=_setup,
    backward=_backward)


def _check(features: Tensor, weight: Tensor, bias: Tensor | None,
           tables: SparseTables) -> None:
    if features.dim() != 2 or weight.dim() != 3 or (
            weight.shape[1] != features.shape[1]):
        raise ValueError(
            'features must be (N, C_in) and weight (K, C_in, C_out), got '
            f'{tuple(features.shape)} and {tuple(weight.shape)}')
    if tables.table.shape[0] != weight.shape[0]:
        raise ValueError(f'the tables have {tables.table.shape[0]} taps, the '
                         f'weight has {weight.shape[0]}')
    rows = tables.table if tables.transposed is None else tables.transposed
    if rows.shape[1] != features.shape[0]:
        raise ValueError(f'the tables are for {rows.shape[1]} rows, features '
                         f'has {features.shape[0]}')
    if bias is not None and bias.shape != weight.shape[2:]:
        raise ValueError(f'bias must be ({weight.shape[2]},), got '
                         f'{tuple(bias.shape)}')
    for name, other in (('weight', weight), ('bias', bias)):
        if other is not None and (other.dtype != features.dtype
                                  or other.device != features.device):
            raise ValueError(
                f'features and {name} must share device and dtype, got '
                f'{features.device} {features.dtype} and {other.device} '
                f'{other.dtype}')
    if tables.table.device != features.device:
        raise ValueError(f'the tables are on {tables.table.device}, features '
                         f'on {features.device}')


def sparse_conv(features: Tensor,
                weight: Tensor,
                tables: SparseTables,
                bias: Tensor | None = None,
                scale: Tensor | None = None,
                relu: bool = False) -> Tensor:
    """Convolve the rows of a sparse tensor.

    ``out = relu(scale * conv(features) + bias)``. A batch norm in evaluation
    mode is ``scale = gamma / sqrt(var + eps)`` and
    ``bias = beta - mean * scale``; ``scale`` is multiplied into the weight.

    Args:
        features: (N, C_in) float32, float64, float16 or bfloat16.
        weight: (K, C_in, C_out), taps with the last axis fastest: a weight
            of mmcv or spconv 1 viewed so, or one of spconv 2
            ``.permute(1, 2, 3, 4, 0)`` first.
        tables: from :func:`sparse_rulebook`, N input and M output rows.
        bias, scale: (C_out,).
        relu: clamp the result at zero.

    Returns:
        (M, C_out) in the dtype of ``features``; under autocast in its dtype.

    Raises:
        ValueError: on a shape, dtype or device mismatch.

    Note:
        Deterministic, forward and backward (once differentiable). Half
        precision accumulates in float32 and rounds once.
    """
    kind = features.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        features, weight = features.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if scale is not None:
        if scale.shape != weight.shape[2:]:
            raise ValueError(f'scale must be ({weight.shape[2]},), got '
                             f'{tuple(scale.shape)}')
        weight = (weight * scale).to(weight.dtype)
    _check(features, weight, bias, tables)
    return _conv(features, weight, bias, *tables, relu)
