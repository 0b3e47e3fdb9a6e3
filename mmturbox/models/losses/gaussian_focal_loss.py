"""GaussianFocalLoss with weights, normaliser and factor in one pass."""

from mmdet.models.losses import GaussianFocalLoss as StockGaussianFocalLoss
from torch import Tensor

from mmturbox.ops import gaussian_focal_loss
from mmturbox.registry import MODELS

from ._differentiable import constant


@MODELS.register_module()
class GaussianFocalLoss(StockGaussianFocalLoss):
    """mmdet's GaussianFocalLoss: same arguments, same loss.

    Sums are in another order. Losses of half precision are computed and
    returned in float32. Positives given by index, a broadcast weight, and a
    target, weight or normaliser that wants a gradient are left to stock.
    """

    def forward(self,
                pred: Tensor,
                target: Tensor,
                pos_inds: Tensor | None = None,
                pos_labels: Tensor | None = None,
                weight: Tensor | None = None,
                avg_factor: float | Tensor | None = None,
                reduction_override: str | None = None) -> Tensor:
        """The loss; see mmdet's for shapes."""
        if (pos_inds is not None or target.shape != pred.shape
                or (weight is not None and weight.shape != pred.shape)
                or not constant(target, weight, avg_factor)):
            return super().forward(pred, target, pos_inds, pos_labels, weight,
                                   avg_factor, reduction_override)
        assert reduction_override in (None, 'none', 'mean', 'sum')
        return gaussian_focal_loss(
            pred,
            target,
            weight,
            alpha=self.alpha,
            gamma=self.gamma,
            pos_weight=self.pos_weight,
            neg_weight=self.neg_weight,
            reduction=reduction_override or self.reduction,
            avg_factor=avg_factor,
            loss_weight=self.loss_weight)
