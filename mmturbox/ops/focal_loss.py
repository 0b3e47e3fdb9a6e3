"""Focal losses over logits (arXiv:1708.02002).

Definition: mmcv's ``sigmoid_focal_loss`` and ``softmax_focal_loss``. The
logarithm of a sigmoid is taken from the logit itself and not from a rounded
probability, in float32 at least, so that loss and gradient are right for
every logit; mmcv's saturate from about 17 on and are NaN in float16.

A label outside [0, number of classes) is background: a negative for every
class in the sigmoid loss, no loss at all in the softmax loss, and of weight
1 where class weights are given.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ._library import define

_TINY = torch.finfo(torch.float32).tiny


def _compute(tensor: Tensor) -> Tensor:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


def _weight_of(weight: Tensor, target: Tensor, like: Tensor) -> Tensor:
    """(N,) weight of each row's label; 1 for background or no weights."""
    if weight.numel() == 0:
        return like.new_ones(target.shape)
    known = (target >= 0) & (target < weight.numel())
    rows = weight.to(like.dtype)[target.clamp(0, weight.numel() - 1)]
    return torch.where(known, rows, 1.0)


def _sigmoid_terms(input: Tensor, target: Tensor):
    """Sign that makes each class a positive, and the positives' mask."""
    positive = target[:, None] == torch.arange(
        input.shape[1], device=input.device)
    return positive, torch.where(positive, input, -input)


def sigmoid_focal_loss_reference(input: Tensor, target: Tensor,
                                 weight: Tensor, gamma: float,
                                 alpha: float) -> Tensor:
    x = _compute(input)
    # A negative is a positive of the opposite logit.
    positive, x = _sigmoid_terms(x, target)
    balance = torch.where(positive, alpha, 1 - alpha).to(x.dtype)
    loss = -balance * torch.sigmoid(-x)**gamma * F.logsigmoid(x)
    return (loss * _weight_of(weight, target, x)[:, None]).to(input.dtype)


def sigmoid_focal_loss_backward_reference(grad: Tensor, input: Tensor,
                                          target: Tensor, weight: Tensor,
                                          gamma: float,
                                          alpha: float) -> Tensor:
    x = _compute(input)
    positive, x = _sigmoid_terms(x, target)
    balance = torch.where(positive, alpha, alpha - 1).to(x.dtype)
    p, q = torch.sigmoid(x), torch.sigmoid(-x)
    slope = balance * q**gamma * (gamma * p * F.logsigmoid(x) - q)
    slope = slope * _weight_of(weight, target, x)[:, None]
    return (slope * grad).to(input.dtype)


def focal_of_probability(probability: Tensor, target: Tensor, weight: Tensor,
                         gamma: float, alpha: float) -> tuple[Tensor, Tensor]:
    """Softmax focal loss (N,) of probabilities (N, K), and its slope.

    The slope (N,) is that of the loss by the label's logit over (1 - p); the
    gradient for class k is ``slope * ([k is the label] - p_k)``.
    """
    known = (target >= 0) & (target < probability.shape[1])
    label = target.clamp(0, probability.shape[1] - 1)
    p = probability.gather(1, label[:, None]).squeeze(1)
    scale = alpha * known * _weight_of(weight, target, p)
    q, log_p = 1 - p, p.clamp(min=_TINY).log()
    # gamma * q**(gamma - 1) * log(p) tends to 0 as q does, for every gamma.
    tail = torch.where(q > 0, gamma * q**(gamma - 1) * p * log_p, 0.0)
    return -scale * q**gamma * log_p, scale * (tail - q**gamma)


def softmax_focal_loss_reference(input: Tensor, target: Tensor,
                                 weight: Tensor, gamma: float,
                                 alpha: float) -> tuple[Tensor, Tensor]:
    probability = _compute(input).softmax(1)
    loss, _ = focal_of_probability(probability, target, weight, gamma, alpha)
    return loss.to(input.dtype), probability


def softmax_focal_loss_backward_reference(grad: Tensor, probability: Tensor,
                                          target: Tensor, weight: Tensor,
                                          gamma: float,
                                          alpha: float) -> Tensor:
    _, slope = focal_of_probability(probability, target, weight, gamma, alpha)
    label = target[:, None] == torch.arange(
        probability.shape[1], device=probability.device)
    slope = (slope * grad)[:, None]
    return torch.where(label, slope * (1 - probability), -slope * probability)


def _sigmoid_setup(ctx, inputs, output):
    input, target, weight, ctx.gamma, ctx.alpha = inputs
    ctx.save_for_backward(input, target, weight)


def _sigmoid_autograd(ctx, grad):
    slope = sigmoid_focal_loss_backward(grad, *ctx.saved_tensors, ctx.gamma,
                                        ctx.alpha)
    return slope, None, None, None, None


def _softmax_setup(ctx, inputs, output):
    input, target, weight, ctx.gamma, ctx.alpha = inputs
    ctx.dtype = input.dtype
    ctx.save_for_backward(output[1], target, weight)


def _softmax_autograd(ctx, grad, unused):
    slope = softmax_focal_loss_backward(
        grad.to(ctx.saved_tensors[0].dtype), *ctx.saved_tensors, ctx.gamma,
        ctx.alpha)
    return slope.to(ctx.dtype), None, None, None, None


def _softmax_fake(input, target, weight, gamma, alpha):
    probability = torch.empty_like(
        _compute(input), memory_format=torch.contiguous_format)
    return input.new_empty(input.shape[0]), probability


_OPTIONS = 'Tensor target, Tensor weight, float gamma, float alpha'
sigmoid_focal_loss_backward = define(
    f'sigmoid_focal_loss_backward(Tensor grad, Tensor input, {_OPTIONS}) '
    '-> Tensor',
    sigmoid_focal_loss_backward_reference,
    fake=lambda grad, input, *rest: input.new_empty(input.shape))
softmax_focal_loss_backward = define(
    f'softmax_focal_loss_backward(Tensor grad, Tensor probability, '
    f'{_OPTIONS}) -> Tensor',
    softmax_focal_loss_backward_reference,
    fake=lambda grad, input, *rest: input.new_empty(input.shape))
_sigmoid = define(
    f'sigmoid_focal_loss(Tensor input, {_OPTIONS}) -> Tensor',
    sigmoid_focal_loss_reference,
    fake=lambda input, *rest: input.new_empty(input.shape),
    setup_context=_sigmoid_setup,
    backward=_sigmoid_autograd)
_softmax = define(
    f'softmax_focal_loss(Tensor input, {_OPTIONS}) -> (Tensor, Tensor)',
    softmax_focal_loss_reference,
    fake=_softmax_fake,
    setup_context=_softmax_setup,
    backward=_softmax_autograd)


def _check(input: Tensor, target: Tensor, weight: Tensor | None,
           reduction: str) -> Tensor:
    if input.dim() != 2 or target.shape != input.shape[:1]:
        raise ValueError('input and target must have shapes (N, K) and (N,), '
                         f'got {tuple(input.shape)} and '
                         f'{tuple(target.shape)}')
    if target.dtype != torch.int64 or not input.is_floating_point():
        raise ValueError('input must be floating and target int64, got '
                         f'{input.dtype} and {target.dtype}')
    if weight is not None and weight.shape != input.shape[1:]:
        raise ValueError(f'weight must have shape ({input.shape[1]},), got '
                         f'{tuple(weight.shape)}')
    if reduction not in ('none', 'mean', 'sum'):
        raise ValueError("reduction must be 'none', 'mean' or 'sum', got "
                         f'{reduction!r}')
    return input.new_empty(0) if weight is None else weight


def _reduce(loss: Tensor, reduction: str, rows: int) -> Tensor:
    if reduction == 'none':
        return loss
    total = _compute(loss).sum()
    if reduction == 'mean':
        total = total / rows
    return total.to(loss.dtype)


def sigmoid_focal_loss(input: Tensor,
                       target: Tensor,
                       gamma: float = 2.0,
                       alpha: float = 0.25,
                       weight: Tensor | None = None,
                       reduction: str = 'mean') -> Tensor:
    """One-against-all focal loss; signature as mmcv's.

    Args:
        input: (N, K) floating logits.
        target: (N,) int64 labels; outside [0, K) is background.
        gamma, alpha: focusing exponent and weight of the positives.
        weight: (K,) weight of each label's row.
        reduction: 'none', 'sum', or 'mean' over the N rows.

    Returns:
        (N, K) for 'none', otherwise a scalar, in the input's dtype.

    Raises:
        ValueError: on a wrong shape, dtype or reduction.

    Note:
        Deterministic. Once differentiable.
    """
    weight = _check(input, target, weight, reduction)
    loss = _sigmoid(input, target, weight, gamma, alpha)
    return _reduce(loss, reduction, len(input))


def softmax_focal_loss(input: Tensor,
                       target: Tensor,
                       gamma: float = 2.0,
                       alpha: float = 0.25,
                       weight: Tensor | None = None,
                       reduction: str = 'mean') -> Tensor:
    """Focal loss of the softmax; signature as mmcv's.

    Args, errors and notes as :func:`sigmoid_focal_loss`; a background label
    gives no loss.

    Returns:
        (N,) for 'none', otherwise a scalar, in the input's dtype.
    """
    weight = _check(input, target, weight, reduction)
    loss, _ = _softmax(input, target, weight, gamma, alpha)
    return _reduce(loss, reduction, len(input))
