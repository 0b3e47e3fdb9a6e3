"""What the losses that leave their gradient share.

Such an operator takes the weights, the normaliser and a factor with its
input, and returns ``(loss, slope)``: the loss, of each element or summed, and
the gradient of its sum, computed in the same pass. Backward is one
multiplication.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._library import define

COMMON = ('float factor, bool reduce, bool with_slope) -> (Tensor, Tensor)')
"""How the schema of each of these operators ends."""
# mmdet adds it to avg_factor.
_EPS = torch.finfo(torch.float32).eps


def compute(tensor: Tensor) -> Tensor:
    """Half precision as float32."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


def finish(loss: Tensor, slope: Tensor, weight: Tensor | None,
           normalizer: Tensor | None, factor: float, reduce: bool,
           with_slope: bool) -> tuple[Tensor, Tensor]:
    """The end of a reference: weigh, scale, sum.

    Args:
        loss: (N, K), or (N,) with one value a row.
        slope: (N, K).
        weight: (N, K) or (N,).
        normalizer: one element.
    """
    scale = torch.full((), factor, dtype=loss.dtype, device=loss.device)
    if normalizer is not None:
        scale = scale / (normalizer.to(loss.dtype).reshape(()) + _EPS)
    if weight is not None:
        scale = scale * weight.to(loss.dtype)
        if weight.dim() == 1:
            scale = scale[:, None]
    slope = slope * scale if with_slope else slope.new_empty(0)
    if loss.dim() == 1 and scale.dim():
        scale = scale[:, 0]
    loss = loss * scale
    return (loss.sum() if reduce else loss), slope


def _setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.dtype = inputs[0].dtype
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.num_inputs = len(inputs)


def _backward(ctx: Any, grad: Tensor | None, unused: None) -> tuple:
    nothing = (None, ) * (ctx.num_inputs - 1)
    if grad is None:
        return (None, *nothing)
    slope, = ctx.saved_tensors
    if slope.dim() == 1:
        raise RuntimeError('the loss was computed with with_slope=False')
    if grad.dim() == 1:
        grad = grad[:, None]
    return ((slope * grad).to(ctx.dtype), *nothing)


def define_loss(schema: str, reference: Callable,
                per_row: bool = False) -> Callable:
    """Declare an operator that ends in :data:`COMMON`.

    Args:
        schema: up to :data:`COMMON`.
        reference: see :func:`finish`.
        per_row: the loss has one value a row.
    """

    def fake(input, *args):
        reduce, with_slope = args[-2:]
        like = compute(input)
        shape = input.shape[:1] if per_row else input.shape
        return (like.new_empty(() if reduce else shape),
                like.new_empty(input.shape if with_slope else (0, )))

    return define(
        schema + COMMON,
        reference,
        fake=fake,
        setup_context=_setup_context,
        backward=_backward)


def call(op: Callable, tensors: Sequence[Tensor], options: Sequence[float],
         weight: Tensor | None, reduction: str,
         avg_factor: float | Tensor | None, loss_weight: float,
         count: int) -> Tensor:
    """Run an operator as mmdet's losses are called.

    Args:
        op: takes ``tensors``, weight, normaliser, ``options`` and what
            :data:`COMMON` names.
        weight: (N,) or of the input's shape.
        reduction: 'none', 'mean' or 'sum'.
        avg_factor: number or tensor of one element that replaces ``count``
            in a mean; a tensor is read where it is.
        loss_weight: factor of the loss.
        count: values of the loss.

    Returns:
        Float32 for half precision; with a tensor as ``avg_factor`` a mean
        has its shape.

    Raises:
        ValueError: on a wrong reduction, shape or device.
    """
    if reduction not in ('none', 'mean', 'sum'):
        raise ValueError("reduction must be 'none', 'mean' or 'sum', got "
                         f'{reduction!r}')
    if avg_factor is not None and reduction == 'sum':
        raise ValueError('avg_factor cannot be used with reduction="sum"')
    for tensor in (*tensors[1:], weight):
        if tensor is not None and tensor.device != tensors[0].device:
            raise ValueError('input, target and weight must share a device, '
                             f'got {tensors[0].device} and {tensor.device}')
    normalizer, shape = None, ()
    factor = float(loss_weight)
    if reduction == 'mean':
        if isinstance(avg_factor, Tensor):
            if avg_factor.numel() != 1:
                raise ValueError('avg_factor must have one element, got '
                                 f'{tuple(avg_factor.shape)}')
            shape = avg_factor.shape
            normalizer = avg_factor.detach().to(tensors[0].device)
        elif avg_factor is not None:
            factor /= avg_factor + _EPS
        else:
            factor = factor / count if count else float('nan')
    with_slope = torch.is_grad_enabled() and tensors[0].requires_grad
    loss = op(*tensors, weight, normalizer, *options, factor,
              reduction != 'none', with_slope)[0]
    return loss.reshape(shape) if shape else loss
