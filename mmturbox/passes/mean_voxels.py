"""Pass: mean_voxels."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, find_types, lookup
from .operators import why_no_kernels
from .twins import swap_types

_PREPROCESSOR = ('model', 'data_preprocessor')


def _why_not(cfg: Any) -> str | None:
    if not list(find_types(cfg, 'mmdet3d.HardSimpleVFE', under='model')):
        return 'the model has no HardSimpleVFE'
    node = lookup(cfg, _PREPROCESSOR) or {}
    layer = node.get('voxel_layer') or {}
    most = layer.get('max_voxels', -1)
    limits = [most] if isinstance(most, int) else list(most)
    if (not node.get('voxel') or node.get('voxel_type', 'hard') != 'hard'
            or layer.get('max_num_points', -1) == -1 or -1 in limits):
        return 'the data preprocessor makes no hard voxels with limits'
    return None


@PASSES.register_module()
class MeanVoxels(ConfigPass):
    """Means of voxels in one pass, without the tensor of grouped points."""
    name = 'mean_voxels'
    side = 'model'
    parity = 'close'
    changes = ('model.*', )
    needs = ('module:mmdet3d', )

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        reason = why_no_kernels(env.device) or _why_not(cfg)
        if reason:
            return Declined(reason)
        edits = [Set((*_PREPROCESSOR, 'mean_voxels'), True)]
        for stock in ('Det3DDataPreprocessor', 'HardSimpleVFE'):
            found = swap_types(cfg, f'mmdet3d.{stock}')
            if isinstance(found, Declined):
                return found
            edits += found
        return edits
