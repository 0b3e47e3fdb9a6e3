"""Pass: log scalars are read when somebody looks, not in every iteration."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, type_is

HOOK = 'mmturbox.RuntimeInfoHook'


@PASSES.register_module()
class DeferredLog(ConfigPass):
    """Keep the losses on the device until they are logged or saved."""
    name = 'deferred_log'
    side = 'system'
    parity = 'bitwise'
    changes = ('default_hooks.runtime_info.type', )

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        # Absent, MMEngine registers RuntimeInfoHook by default.
        hook = (cfg.get('default_hooks') or {}).get(
            'runtime_info', dict(type='RuntimeInfoHook'))
        if hook is None:
            return Declined('default_hooks.runtime_info is None')
        if isinstance(hook, dict) and hook.get('type') == HOOK:
            return []
        if not type_is(hook, 'mmengine.RuntimeInfoHook'):
            return Declined('default_hooks.runtime_info is not MMEngine\'s '
                            'RuntimeInfoHook')
        return [Set('default_hooks.runtime_info.type', HOOK)]
