"""Pass: voxels."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class Voxels(OperatorPass):
    """Dynamic voxel features for a whole batch, found once for all
    reductions; voxels and points in boxes by mmturbox's kernels."""
    name = 'voxels'
    parity = 'close'
    types = ('mmdet3d.DynamicPillarFeatureNet', 'mmdet3d.DynamicSimpleVFE',
             'mmdet3d.DynamicVFE')
