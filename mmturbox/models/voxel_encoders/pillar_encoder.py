"""Pillar features without passes over empty points.

Legend: M pillars with room for P points of K values, F output channels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from mmdet3d.models.voxel_encoders import PillarFeatureNet as StockNet
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from mmturbox.models.layers.hooked import hooked
from mmturbox.ops import native, pillar_grads, pillar_pool, pillar_stats
from mmturbox.registry import MODELS


class _LinearNormMax(torch.autograd.Function):
    """Linear layer, batch norm with given statistics, ReLU, maximum.

    The gradient of a maximum reaches one point a channel, and what the
    statistics add is known from the second moments of the input, so that
    the backward pass needs no (M, P, F) tensor.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, num_points: Tensor, values: Tensor,
                matrix: Tensor, weight: Tensor, bias: Tensor, mean: Tensor,
                invstd: Tensor, training: bool) -> Tensor:
        pooled, index = pillar_pool(values, num_points, mean, invstd, weight,
                                    bias)
        ctx.save_for_backward(points, num_points, matrix, weight, mean, invstd,
                              pooled, index)
        ctx.training = training
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (points, num_points, matrix, weight, mean, invstd, pooled,
         index) = ctx.saved_tensors
        grad = grad * (pooled > 0)
        picked, moment, total = pillar_grads(points, num_points, index, grad)
        rows = points.shape[0] * points.shape[1]
        mean, invstd, matrix = mean.double(), invstd.double(), matrix.double()
        of_bias = grad.sum(0, dtype=torch.float64)
        of_weight = invstd * ((matrix * picked).sum(1) - mean * of_bias)
        if ctx.training:
            # Sum over all rows of the normalised value times the input.
            normed = matrix @ moment - torch.outer(mean, total)
            picked = picked - (
                torch.outer(of_bias, total) +
                (of_weight * invstd)[:, None] * normed) / rows
        of_matrix = (invstd * weight)[:, None] * picked
        kind = weight.dtype
        return (None, None, None, of_matrix.to(kind), of_weight.to(kind),
                of_bias.to(kind), None, None, None)


@MODELS.register_module()
class PillarFeatureNet(StockNet):
    """mmdet3d's PillarFeatureNet: same arguments, parameters and outputs.

    With one layer and ``mode='max'`` (as in PointPillars and CenterPoint),
    norm, ReLU and maximum are one operation and the backward pass is sparse.
    On a CPU the output is equal to stock's bit for bit; gradients are the
    same sums in another order. Anything else runs as stock, also a CPU
    without the native operators, whose bits would differ.
    """

    def forward(self, features: Tensor, num_points: Tensor, coors: Tensor,
                *args: Any, **kwargs: Any) -> Tensor:
        """Features of pillars.

        Args:
            features: (M, P, C), zero beyond ``num_points``.
            num_points: (M,) integers.
            coors: (M, 4) integers: sample, z, y, x.

        Returns:
            (M, F).
        """
        if not self._fits(features):
            return super().forward(features, num_points, coors, *args,
                                   **kwargs)
        points = self._decorate(features, num_points, coors)
        layer = self.pfn_layers[0]
        norm, num_points = layer.norm, num_points.int()
        with torch.no_grad():
            values = F.linear(points, layer.linear.weight)
            mean, invstd = self._statistics(norm, values, num_points)
        return _LinearNormMax.apply(points, num_points, values,
                                    layer.linear.weight, norm.weight,
                                    norm.bias, mean, invstd, norm.training)

    def _fits(self, features: Tensor) -> bool:
        layer = self.pfn_layers[0]
        norm = layer.norm
        return (not self.legacy and len(self.pfn_layers) == 1
                and layer.mode == 'max' and not hooked(layer.modules())
                and type(norm) is nn.BatchNorm1d and norm.affine
                and norm.running_mean is not None
                and norm.momentum is not None and len(features) > 0
                and not features.requires_grad
                and (features.device.type != 'cpu' or native())
                and features.dtype == norm.weight.dtype
                and not torch.is_autocast_enabled(features.device.type))

    def _decorate(self, features: Tensor, num_points: Tensor,
                  coors: Tensor) -> Tensor:
        """(M, P, K): stock's decorations, bit for bit."""
        size, offset, slots = self._constants(features)
        xyz = features[:, :, :3]
        parts = [features]
        if self._with_cluster_center:
            count = num_points.type_as(features).view(-1, 1, 1)
            parts.append(xyz - xyz.sum(1, keepdim=True) / count)
        if self._with_voxel_center:
            # z, y, x turned to x, y, z.
            center = coors[:, 1:].flip(1).to(features.dtype) * size + offset
            parts.append(xyz - center[:, None])
        if self._with_distance:
            parts.append(torch.norm(xyz, 2, 2, keepdim=True))
        there = num_points[:, None] > slots
        return torch.cat(parts, -1).mul_(there[:, :, None])

    def _constants(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pillar size, centre of the first pillar, 0 .. P - 1."""
        key = (features.device, features.dtype, features.shape[1])
        cached = getattr(self, '_constants_of', None)
        if cached is None or cached[0] != key:
            # They outlive the mode in which they are made.
            with torch.inference_mode(False):
                self._constants_of = cached = (
                    key, features.new_tensor([self.vx, self.vy, self.vz]),
                    features.new_tensor(
                        [self.x_offset, self.y_offset, self.z_offset]),
                    torch.arange(features.shape[1], device=features.device))
        return cached[1:]

    @staticmethod
    def _statistics(norm: nn.BatchNorm1d, values: Tensor,
                    num_points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and 1 / deviation; updates the running ones in training."""
        if not norm.training:
            return norm.running_mean, 1 / torch.sqrt(norm.running_var +
                                                     norm.eps)
        rows, momentum = values.shape[0] * values.shape[1], norm.momentum
        mean, var_sum = pillar_stats(values, num_points)
        norm.running_mean.mul_(1 - momentum).add_(mean * momentum)
        norm.running_var.mul_(1 - momentum).add_(var_sum / (rows - 1) *
                                                 momentum)
        norm.num_batches_tracked.add_(1)
        var = (var_sum / rows).double()
        return mean, (1 / torch.sqrt(var + norm.eps)).to(mean.dtype)
