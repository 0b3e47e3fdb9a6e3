"""Pass: pillars to the bird's eye view without a loop over samples."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set
from .twins import swap_types


@PASSES.register_module()
class PillarsScatter(ConfigPass):
    """One scatter for the batch; no boolean masks, no read of its size
    (together with the pass ``voxelize``)."""
    name = 'pillars_scatter'
    side = 'model'
    parity = 'bitwise'
    changes = ('model.*.type', )
    needs = ('module:mmdet3d', )

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        return swap_types(cfg, 'mmdet3d.PointPillarsScatter')
