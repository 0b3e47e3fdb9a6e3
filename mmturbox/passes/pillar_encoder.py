"""Pass: pillar features without passes over empty points."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, lookup, type_is
from .twins import swap_types


def _why_not(cfg: Any, path: tuple) -> str | None:
    node = lookup(cfg, path)
    if node.get('legacy', True):
        return 'PillarFeatureNet in legacy mode changes its input in place'
    if len(node.get('feat_channels', (64, ))) != 1:
        return 'PillarFeatureNet has several layers'
    if node.get('mode', 'max') != 'max':
        return f'PillarFeatureNet pools by {node["mode"]}, not by max'
    norm = node.get('norm_cfg', dict(type='BN1d'))
    if not type_is(norm, 'BN1d', 'BatchNorm1d'):
        return f'the norm is {norm["type"]}, not BN1d'
    return None


@PASSES.register_module()
class PillarEncoder(ConfigPass):
    """Norm, ReLU and maximum over points in one, with a sparse backward."""
    name = 'pillar_encoder'
    side = 'model'
    parity = 'close'
    changes = ('model.*.type', )
    needs = ('module:mmdet3d', )

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        from mmturbox.ops import native
        if not native(env.device):
            return Declined(f'no native operators for {env.device}; the '
                            'reference needs large float64 temporaries')
        if type_is(cfg.get('optim_wrapper'), 'AmpOptimWrapper'):
            return Declined('under autocast (AmpOptimWrapper) the twin runs '
                            'as stock')
        if cfg.get('sync_bn') and env.world_size > 1:
            return Declined(f'sync_bn={cfg.get("sync_bn")!r} replaces the '
                            'norm, and the twin runs as stock')
        return swap_types(cfg, 'mmdet3d.PillarFeatureNet', _why_not)
