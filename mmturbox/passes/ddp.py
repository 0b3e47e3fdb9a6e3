"""Pass: gradients are views of DDP's buckets."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, type_is

WRAPPER = 'MMDistributedDataParallel'


@PASSES.register_module()
class DDPSettings(ConfigPass):
    """Save DDP's copy between gradients and buckets, and their memory.

    What MMEngine would set is kept: without ``model_wrapper_cfg`` buffers
    are not broadcast and ``find_unused_parameters`` is the config's.

    Options:
        static_graph: the same parameters are used in every iteration, in the
            same order. DDP then looks for unused ones only once. Not checked
            by DDP after the first iteration: a model for which it does not
            hold hangs or trains wrongly, so it is never set unasked.
    """
    name = 'ddp'
    side = 'system'
    parity = 'bitwise'
    changes = ('model_wrapper_cfg.*', )
    needs = ('distributed', )
    options = dict(static_graph=False)

    def plan(self, cfg: Any, env: Environment,
             static_graph: bool) -> list[Set] | Declined:
        wanted = dict(gradient_as_bucket_view=True)
        if static_graph:
            wanted['static_graph'] = True
        wrapper = cfg.get('model_wrapper_cfg')
        if wrapper is None:
            wrapper = {}
            wanted = dict(
                type=WRAPPER,
                broadcast_buffers=False,
                find_unused_parameters=cfg.get('find_unused_parameters',
                                               False),
                **wanted)
        elif 'type' in wrapper and not type_is(wrapper, f'mmengine.{WRAPPER}'):
            return Declined(f'model_wrapper_cfg.type is {wrapper["type"]}')
        return [
            Set(('model_wrapper_cfg', key), value)
            for key, value in wanted.items() if key not in wrapper
        ]
