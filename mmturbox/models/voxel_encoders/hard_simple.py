"""Means of voxels that may have been taken already."""

from typing import Any

from mmdet3d.models.voxel_encoders import HardSimpleVFE as StockVFE
from torch import Tensor

from mmturbox.registry import MODELS


@MODELS.register_module()
class HardSimpleVFE(StockVFE):
    """mmdet3d's HardSimpleVFE, which also takes means.

    :class:`mmturbox.Det3DDataPreprocessor` with ``mean_voxels=True`` makes
    means instead of grouped points; of those only the features in use are
    taken. Grouped points are averaged as in stock.
    """

    def forward(self, features: Tensor, num_points: Tensor, coors: Tensor,
                *args: Any, **kwargs: Any) -> Tensor:
        """Mean of the points of each voxel.

        Args:
            features: (M, P, C) points, zero beyond ``num_points``, or (M, C)
                means.
            num_points: (M,) integers.
            coors: (M, 4) integers: sample, z, y, x.

        Returns:
            (M, num_features).
        """
        if features.dim() == 2:
            return features[:, :self.num_features].contiguous()
        return super().forward(features, num_points, coors, *args, **kwargs)
