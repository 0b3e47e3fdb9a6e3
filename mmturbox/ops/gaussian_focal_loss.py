"""Focal loss for heat maps of Gaussians (CornerNet, arXiv:1808.01244).

Definition: mmdet's ``gaussian_focal_loss``: of probabilities, positive where
the target is 1; elsewhere a negative whose weight falls near a peak. The sum
``1e-12`` that guards the logarithms is kept.
"""

from torch import Tensor

from ._losses import call, compute, define_loss, finish

_EPS = 1e-12


def gaussian_focal_loss_reference(input: Tensor, target: Tensor,
                                  weight: Tensor | None,
                                  normalizer: Tensor | None, alpha: float,
                                  gamma: float, pos_weight: float,
                                  neg_weight: float,
                                  *rest) -> tuple[Tensor, Tensor]:
    p = compute(input)
    t = target.to(p.dtype)
    q = 1 - p
    weight_p = pos_weight * t.eq(1).to(p.dtype)
    weight_q = neg_weight * (1 - t)**gamma
    log_p, log_q = (p + _EPS).log(), (q + _EPS).log()
    loss = -weight_p * log_p * q**alpha - weight_q * log_q * p**alpha
    slope = (weight_p *
             (alpha * q**(alpha - 1) * log_p - q**alpha / (p + _EPS)) +
             weight_q *
             (p**alpha / (q + _EPS) - alpha * p**(alpha - 1) * log_q))
    return finish(loss, slope, weight, normalizer, *rest)


_gaussian = define_loss(
    'gaussian_focal_loss(Tensor input, Tensor target, Tensor? weight, '
    'Tensor? normalizer, float alpha, float gamma, float pos_weight, '
    'float neg_weight, ', gaussian_focal_loss_reference)


def gaussian_focal_loss(pred: Tensor,
                        target: Tensor,
                        weight: Tensor | None = None,
                        alpha: float = 2.0,
                        gamma: float = 4.0,
                        pos_weight: float = 1.0,
                        neg_weight: float = 1.0,
                        reduction: str = 'mean',
                        avg_factor: float | Tensor | None = None,
                        loss_weight: float = 1.0) -> Tensor:
    """Gaussian focal loss with weights, normaliser and factor in one pass.

    Equals ``loss_weight *`` mmdet's ``gaussian_focal_loss``.

    Args:
        pred: floating probabilities in [0, 1], any shape.
        target: of the same shape, in [0, 1].
        weight: of the same shape.
        alpha, gamma: exponents of the prediction and of the target.
        pos_weight, neg_weight: factors of positives and negatives.
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
    for tensor, name in ((target, 'target'), (weight, 'weight')):
        if tensor is not None and tensor.shape != pred.shape:
            raise ValueError(f'{name} must have the shape of pred, '
                             f'{tuple(pred.shape)}, got '
                             f'{tuple(tensor.shape)}')
    if not pred.is_floating_point():
        raise ValueError(f'pred must be floating, got {pred.dtype}')
    shape = pred.shape
    pred, target, weight = (
        None if tensor is None else tensor.reshape(1, -1)
        for tensor in (pred, target, weight))
    loss = call(_gaussian, (pred, target),
                (alpha, gamma, pos_weight, neg_weight), weight, reduction,
                avg_factor, loss_weight, pred.numel())
    return loss.reshape(shape) if reduction == 'none' else loss
