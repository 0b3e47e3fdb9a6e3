"""FocalLoss with weights, normaliser and factor in one pass."""

import torch
from mmdet.models.losses import FocalLoss as StockFocalLoss
from torch import Tensor

from mmturbox.ops import sigmoid_focal_loss_fused
from mmturbox.registry import MODELS

from ._differentiable import constant


@MODELS.register_module()
class FocalLoss(StockFocalLoss):
    """mmdet's FocalLoss: same arguments, same loss.

    Sums are in another order. Losses of half precision are computed and
    returned in float32. A label outside of the classes is background on every
    device. Probabilities (``activated``), a broadcast weight, and a target,
    weight or normaliser that wants a gradient are left to stock.
    """

    def forward(self,
                pred: Tensor,
                target: Tensor,
                weight: Tensor | None = None,
                avg_factor: float | Tensor | None = None,
                reduction_override: str | None = None) -> Tensor:
        """The loss; see mmdet's for shapes."""
        dense = target.shape == pred.shape
        labels = pred.dim() == 2 and target.shape == pred.shape[:1]
        if (self.activated or not (dense or labels)
                or not _fits(weight, pred)
                or not constant(target, weight, avg_factor)):
            return super().forward(pred, target, weight, avg_factor,
                                   reduction_override)
        assert reduction_override in (None, 'none', 'mean', 'sum')
        return sigmoid_focal_loss_fused(
            pred,
            target if dense else target.to(torch.int64),
            weight,
            gamma=self.gamma,
            alpha=self.alpha,
            reduction=reduction_override or self.reduction,
            avg_factor=avg_factor,
            loss_weight=self.loss_weight)


def _fits(weight: Tensor | None, pred: Tensor) -> bool:
    if weight is None or weight.shape == pred.shape:
        return True
    rows = pred.dim() == 2 and weight.numel() == len(pred)
    return rows or weight.numel() == pred.numel()
