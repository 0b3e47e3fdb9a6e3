"""Focal losses over logits (arXiv:1708.02002).

Definition: mmcv's ``sigmoid_focal_loss`` and ``softmax_focal_loss``, and
mmdet's ``py_sigmoid_focal_loss`` for targets between 0 and 1. The logarithms
are taken from the logit itself and not from a rounded probability, in float32
at least, so that loss and gradient are right for every logit; mmcv's saturate
from about 17 on and are NaN in float16.

A label outside [0, number of classes) is background: a negative for every
class in the sigmoid loss, no loss at all in the softmax loss, and of weight
1 where class weights are given.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ._losses import call, compute, define_loss, finish

_TINY = torch.finfo(torch.float32).tiny


def _one_hot(label: Tensor, like: Tensor) -> Tensor:
    classes = torch.arange(like.shape[1], device=like.device)
    return (label[:, None] == classes).to(like.dtype)


def sigmoid_focal_loss_reference(input: Tensor, target: Tensor,
                                 weight: Tensor | None,
                                 normalizer: Tensor | None, gamma: float,
                                 alpha: float, *rest) -> tuple[Tensor, Tensor]:
    x = compute(input)
    t = _one_hot(target, x) if target.dim() == 1 else target.to(x.dtype)
    p, q = torch.sigmoid(x), torch.sigmoid(-x)
    entropy = F.binary_cross_entropy_with_logits(x, t, reduction='none')
    miss = q * t + p * (1 - t)
    balance = alpha * t + (1 - alpha) * (1 - t)
    focus = miss**gamma
    bend = torch.where(miss > 0, gamma * focus *
                       (p * q * (1 - 2 * t) / miss), 0.0)
    slope = balance * (bend * entropy + focus * (p * (1 - t) - q * t))
    return finish(balance * focus * entropy, slope, weight, normalizer, *rest)


def softmax_focal_loss_reference(input: Tensor, target: Tensor,
                                 weight: Tensor | None,
                                 normalizer: Tensor | None, gamma: float,
                                 alpha: float, *rest) -> tuple[Tensor, Tensor]:
    x = compute(input)
    if x.shape[1] == 0:
        return finish(x.new_zeros(len(x)), x, weight, normalizer, *rest)
    known = (target >= 0) & (target < x.shape[1])
    label = target.clamp(0, x.shape[1] - 1)[:, None]
    log_p = x.log_softmax(1)
    logs = log_p.gather(1, label).squeeze(1)
    p = logs.exp()
    focus = (1 - p)**gamma
    bend = torch.where(p < 1, gamma * focus / (1 - p) * p * logs, 0.0)
    slope = (alpha * (bend - focus) * known)[:, None]
    slope = slope * (_one_hot(target, x) - log_p.exp())
    return finish(-alpha * focus * logs * known, slope, weight, normalizer,
                  *rest)


def focal_of_probability(probability: Tensor, target: Tensor, weight: Tensor,
                         gamma: float, alpha: float) -> tuple[Tensor, Tensor]:
    """Softmax focal loss (N,) of probabilities (N, K), and its slope.

    The slope (N,) is that of the loss by the label's logit over (1 - p); the
    gradient for class k is ``slope * ([k is the label] - p_k)``. ``weight``
    is (K,) or empty.
    """
    known = (target >= 0) & (target < probability.shape[1])
    label = target.clamp(0, probability.shape[1] - 1)
    p = probability.gather(1, label[:, None]).squeeze(1)
    scale = alpha * known
    if weight.numel():
        scale = scale * weight[label]
    q, log_p = 1 - p, p.clamp(min=_TINY).log()
    # gamma * q**(gamma - 1) * log(p) tends to 0 as q does, for every gamma.
    tail = torch.where(q > 0, gamma * q**(gamma - 1) * p * log_p, 0.0)
    return -scale * q**gamma * log_p, scale * (tail - q**gamma)


_ARGUMENTS = ('(Tensor input, Tensor target, Tensor? weight, '
              'Tensor? normalizer, float gamma, float alpha, ')
_sigmoid = define_loss('sigmoid_focal_loss' + _ARGUMENTS,
                       sigmoid_focal_loss_reference)
_softmax = define_loss('softmax_focal_loss' + _ARGUMENTS,
                       softmax_focal_loss_reference, per_row=True)


def _check(input: Tensor, target: Tensor) -> None:
    if input.dim() != 2 or target.shape != input.shape[:1]:
        raise ValueError('input and target must have shapes (N, K) and (N,), '
                         f'got {tuple(input.shape)} and '
                         f'{tuple(target.shape)}')
    if target.dtype != torch.int64 or not input.is_floating_point():
        raise ValueError('input must be floating and target int64, got '
                         f'{input.dtype} and {target.dtype}')


def _of_labels(weight: Tensor | None, input: Tensor,
               target: Tensor) -> Tensor | None:
    """(N,) weight of each row's label, 1 for background."""
    if weight is None:
        return None
    if weight.shape != input.shape[1:] or weight.device != input.device:
        raise ValueError(f'weight must have shape ({input.shape[1]},) and the '
                         f'device {input.device}, got {tuple(weight.shape)} '
                         f'on {weight.device}')
    rows = weight[target.clamp(0, max(len(weight) - 1, 0))]
    return torch.where((target >= 0) & (target < len(weight)), rows, 1.0)


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
        ValueError: on a wrong shape, dtype, device or reduction.

    Note:
        Deterministic. Once differentiable; the gradient is computed in the
        forward pass. No host synchronisation.
    """
    _check(input, target)
    weight = _of_labels(weight, input, target)
    return call(_sigmoid, (input, target), (gamma, alpha), weight, reduction,
                None, 1.0, len(input)).to(input.dtype)


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
    _check(input, target)
    weight = _of_labels(weight, input, target)
    return call(_softmax, (input, target), (gamma, alpha), weight, reduction,
                None, 1.0, len(input)).to(input.dtype)


def sigmoid_focal_loss_fused(pred: Tensor,
                             target: Tensor,
                             weight: Tensor | None = None,
                             gamma: float = 2.0,
                             alpha: float = 0.25,
                             reduction: str = 'mean',
                             avg_factor: float | Tensor | None = None,
                             loss_weight: float = 1.0) -> Tensor:
    """Sigmoid focal loss with weights, normaliser and factor in one pass.

    Equals ``loss_weight *`` mmdet's ``py_sigmoid_focal_loss``.

    Args:
        pred: (N, K) floating logits; any shape with a dense target.
        target: (N,) int64 labels, outside [0, K) background; or of the
            shape of ``pred``, values in [0, 1] of any dtype.
        weight: (N,), (N, K) or N * K values.
        gamma, alpha: focusing exponent and weight of the positives.
        reduction: 'none', 'sum', or 'mean' over all values.
        avg_factor: number, or tensor of one element that is read on its
            device; takes the place of the number of values in the mean, with
            float32's epsilon added.
        loss_weight: factor of the loss.

    Returns:
        Of the shape of ``pred`` for 'none', else of that of a tensor
        ``avg_factor``, else a scalar; in float32 for half precision.

    Raises:
        ValueError: on a wrong shape, dtype, device or reduction.

    Note:
        Deterministic. Once differentiable, by ``pred`` only; the gradient is
        computed in the forward pass and is kept in float32 at least. No host
        synchronisation.
    """
    shape = pred.shape
    if target.shape == shape:
        columns = shape[-1] if shape else 1
        pred = pred.reshape(-1, columns) if pred.numel() else pred.reshape(
            0, columns)
        target = target.reshape(pred.shape)
    else:
        _check(pred, target)
    loss = call(_sigmoid, (pred, target), (gamma, alpha),
                shaped_weight(weight, pred), reduction, avg_factor,
                loss_weight, pred.numel())
    return loss.reshape(shape) if reduction == 'none' else loss


def softmax_focal_loss_fused(pred: Tensor,
                             target: Tensor,
                             weight: Tensor | None = None,
                             gamma: float = 2.0,
                             alpha: float = 0.25,
                             reduction: str = 'mean',
                             avg_factor: float | Tensor | None = None,
                             loss_weight: float = 1.0) -> Tensor:
    """Softmax focal loss with weights, normaliser and factor in one pass.

    As :func:`sigmoid_focal_loss_fused`, with labels only, one loss a row,
    (N,) weights, and 'mean' over the N rows.
    """
    _check(pred, target)
    if weight is not None and weight.shape != target.shape:
        raise ValueError(f'weight must have shape {tuple(target.shape)}, got '
                         f'{tuple(weight.shape)}')
    return call(_softmax, (pred, target), (gamma, alpha), weight, reduction,
                avg_factor, loss_weight, len(pred))


def shaped_weight(weight: Tensor | None, pred: Tensor) -> Tensor | None:
    """``weight`` as (N,), or as the shape (N, K) of ``pred``."""
    if weight is None or weight.shape == pred.shape:
        return weight
    if weight.numel() == pred.numel():
        return weight.reshape(pred.shape)
    if weight.numel() == len(pred):
        return weight.reshape(-1)
    raise ValueError(f'weight must have {len(pred)} or {pred.numel()} values '
                     f'for a prediction of shape {tuple(pred.shape)}, got '
                     f'{tuple(weight.shape)}')
