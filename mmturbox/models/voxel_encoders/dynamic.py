"""Dynamic voxel encoders whose scatter takes the whole batch at once.

Stock's layer scatters sample after sample and looks for the voxels anew in
each call; here they are looked for once for each ``coors``, with one read.
"""

import torch
from mmcv.ops import DynamicScatter as StockScatter
from mmdet3d.models.voxel_encoders import (
    DynamicPillarFeatureNet as StockPillarNet,
)
from mmdet3d.models.voxel_encoders import DynamicSimpleVFE as StockSimpleVFE
from mmdet3d.models.voxel_encoders import DynamicVFE as StockVFE
from torch import Tensor, nn

from mmturbox.ops import VoxelGroups, voxel_groups, voxel_reduce
from mmturbox.registry import MODELS

_ATTRIBUTE = '_mmturbox_groups'


def groups_of(coors: Tensor) -> VoxelGroups:
    """Voxels of ``coors``, remembered on it until it is written to."""
    if coors.is_inference() or torch.compiler.is_compiling():
        return voxel_groups(coors)  # cannot tell whether it was written to
    version, groups = getattr(coors, _ATTRIBUTE, (None, None))
    if version != coors._version:
        groups = voxel_groups(coors)
        setattr(coors, _ATTRIBUTE, (coors._version, groups))
    return groups


class DynamicScatter(StockScatter):
    """mmcv's DynamicScatter: same arguments and results.

    Voxels come in the same order (sample, z, y, x); sums are taken in point
    order.
    """

    def forward(self, points: Tensor, coors: Tensor) -> tuple[Tensor, Tensor]:
        """Reduce point features over voxels.

        Args:
            points: (N, C) floating.
            coors: (N, 3) or (N, 4) integers, with the sample in front of
                four; a point with a negative one is left out.

        Returns:
            (M, C) features, (M, 3) or (M, 4) coordinates of the voxels.
        """
        groups = groups_of(coors)
        reduce = 'mean' if self.average_points else 'max'
        return voxel_reduce(points, groups, reduce), groups.coors


def _take_whole_batches(module: nn.Module) -> None:
    """Put our scatter in the place of stock's among the children."""
    for name, child in module.named_children():
        if type(child) is StockScatter:
            setattr(module, name,
                    DynamicScatter(child.voxel_size, child.point_cloud_range,
                                   child.average_points))


@MODELS.register_module()
class DynamicSimpleVFE(StockSimpleVFE):
    """mmdet3d's DynamicSimpleVFE: same arguments and results."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        _take_whole_batches(self)


@MODELS.register_module()
class DynamicVFE(StockVFE):
    """mmdet3d's DynamicVFE: same arguments, parameters and results."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        _take_whole_batches(self)


@MODELS.register_module()
class DynamicPillarFeatureNet(StockPillarNet):
    """mmdet3d's DynamicPillarFeatureNet: same arguments, parameters and
    results."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        _take_whole_batches(self)
