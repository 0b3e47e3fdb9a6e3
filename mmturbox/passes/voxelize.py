"""Pass: voxels of the whole batch in one call."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, lookup
from .twins import swap_types


def _mmcv_has_kernels() -> bool:
    from mmturbox.ops import mmcv_ext
    return mmcv_ext.status().startswith('compiled')


def _why_not(cfg: Any, path: tuple) -> str | None:
    node = lookup(cfg, path)
    if not node.get('voxel'):
        return 'the data preprocessor makes no voxels'
    kind = node.get('voxel_type', 'hard')
    if kind not in ('hard', 'dynamic'):
        return f'{kind} voxels are made by stock'
    return None


@PASSES.register_module()
class Voxelize(ConfigPass):
    """Hard voxels with one read a batch, dynamic ones with none."""
    name = 'voxelize'
    side = 'model'
    parity = 'bitwise'
    changes = ('model.*.type', )
    needs = ('module:mmdet3d', )

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        from mmturbox.ops import native
        if env.device != 'cpu' and not native(env.device) and (
                _mmcv_has_kernels()):
            return Declined(f'mmcv has a kernel for {env.device}, and mmturbox'
                            ' has none')
        return swap_types(cfg, 'mmdet3d.Det3DDataPreprocessor', _why_not)
