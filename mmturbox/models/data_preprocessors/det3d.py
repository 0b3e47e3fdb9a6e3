"""Voxels of a whole batch in one call."""

from typing import Any

import torch
from mmdet3d.models.data_preprocessors import (
    Det3DDataPreprocessor as StockPreprocessor,
)
from torch import Tensor

from mmturbox.models.middle_encoders.pillars_scatter import note_batch_size
from mmturbox.ops import dynamic_voxelize, hard_voxelize_batch, voxel_mean
from mmturbox.registry import MODELS


@MODELS.register_module()
class Det3DDataPreprocessor(StockPreprocessor):
    """mmdet3d's Det3DDataPreprocessor: same arguments and results.

    Hard and dynamic voxels are made for all samples at once, with one read
    (hard) or none (dynamic); results are equal bit for bit to stock's
    deterministic mode. Other kinds of voxels are stock's.

    Args:
        mean_voxels: give each hard voxel as the mean of its points, (M, C),
            for :class:`mmturbox.HardSimpleVFE`; no tensor of grouped points
            is made. Other arguments are stock's.

    Note:
        ``coors`` carries the number of samples as a Python attribute, which
        :class:`mmturbox.PointPillarsScatter` takes instead of reading it.
    """

    def __init__(self,
                 *args: Any,
                 mean_voxels: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mean_voxels = mean_voxels

    @torch.no_grad()
    def voxelize(self, points: list[Tensor],
                 data_samples: list | None) -> dict[str, Tensor]:
        """Voxels of a batch.

        Args:
            points: for each sample (N_b, C >= 3) floating, in metres.
            data_samples: used by other kinds of voxels only.

        Returns:
            hard: ``voxels`` (M, P, C) or means (M, C), ``coors`` (M, 4)
            int32 of sample, z, y, x, ``num_points`` (M,) int32,
            ``voxel_centers`` (M, 3);
            dynamic: ``voxels`` (N, C) and ``coors`` (N, 4).
        """
        layer = getattr(self, 'voxel_layer', None)
        capped = layer is not None and layer.max_num_points != -1 and min(
            layer.max_voxels) != -1
        if self.voxel_type == 'hard' and capped:
            result = self._hard(points)
        elif (self.voxel_type == 'dynamic' and not capped
              and not self.mean_voxels):
            result = self._dynamic(points)
        else:
            if self.mean_voxels:
                raise ValueError(
                    'mean_voxels needs hard voxels with limits, got '
                    f'voxel_type={self.voxel_type!r} and voxel_layer={layer}')
            return super().voxelize(points, data_samples)
        note_batch_size(result['coors'], len(points))
        return result

    def _hard(self, points: list[Tensor]) -> dict[str, Tensor]:
        layer = self.voxel_layer
        make = voxel_mean if self.mean_voxels else hard_voxelize_batch
        voxels, coors, num_points = make(
            points, layer.voxel_size, layer.point_cloud_range,
            layer.max_num_points, layer.max_voxels[0 if layer.training else 1])
        size, origin = self._grid(voxels)
        # z, y, x turned to x, y, z.
        centers = (coors[:, 1:].flip(1) + 0.5) * size + origin
        return dict(
            voxels=voxels,
            coors=coors,
            num_points=num_points,
            voxel_centers=centers)

    def _dynamic(self, points: list[Tensor]) -> dict[str, Tensor]:
        layer = self.voxel_layer
        joined = torch.cat(points)
        coors = dynamic_voxelize(joined, layer.voxel_size,
                                 layer.point_cloud_range)
        sample = torch.cat([
            coors.new_full((len(one), 1), i) for i, one in enumerate(points)
        ])
        return dict(voxels=joined, coors=torch.cat((sample, coors), dim=1))

    def _grid(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Voxel size and origin, (3,) each, in the voxels' dtype."""
        cached = getattr(self, '_grid_of', None)
        if cached is None or cached[0] != (like.device, like.dtype):
            layer = self.voxel_layer
            self._grid_of = ((like.device, like.dtype), *(
                like.new_tensor(values)
                for values in (layer.voxel_size,
                               layer.point_cloud_range[:3])))
        return self._grid_of[1:]
