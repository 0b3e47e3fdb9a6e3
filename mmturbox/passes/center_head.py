"""Pass: CenterPoint's targets and losses for the whole batch at once."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set
from .twins import swap_types, training_settings

_NEEDED = ('grid_size', 'point_cloud_range', 'voxel_size', 'out_size_factor',
           'max_objs', 'dense_reg', 'gaussian_overlap', 'min_radius',
           'code_weights')


def _why_not(cfg: Any, path: tuple) -> str | None:
    settings = training_settings(cfg, path)
    if settings is None:
        return 'CenterHead has no train_cfg'
    missing = [key for key in _NEEDED if key not in settings]
    return missing and f'train_cfg lacks {", ".join(missing)}' or None


@PASSES.register_module()
class CenterHeadPass(ConfigPass):
    """Targets without a loop over boxes, losses without reads, one
    evaluation for all branches of all tasks."""
    name = 'center_head'
    side = 'model'
    parity = 'close'
    changes = ('model.*.type', )
    needs = ('module:mmdet3d', )

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        return swap_types(cfg, 'mmdet3d.CenterHead', _why_not)
