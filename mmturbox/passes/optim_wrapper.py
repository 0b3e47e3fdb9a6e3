"""Pass: fused step, merged parameter groups, clipping without reads."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, type_is

WRAPPER = 'mmturbox.OptimWrapper'
# As torch's: the registry names the classes so. Values are the devices.
FUSED = dict(
    Adam=('cpu', 'cuda'),
    AdamW=('cpu', 'cuda'),
    SGD=('cpu', 'cuda'),
    Adagrad=('cpu', ))


def _why_not(cfg: dict, env: Environment) -> str | None:
    """Why the optimizer config cannot be fused, or None."""
    name = next((n for n in FUSED if type_is(cfg, f'torch.{n}')), None)
    if name is None:
        return f'{cfg.get("type")} has no fused kernel'
    if env.device not in FUSED[name]:
        return f'{name} is not fused on {env.device}'
    from mmturbox.optim.fused import why_flags_forbid
    reason = why_flags_forbid(cfg)
    return reason and f'optimizer: {reason}'


@PASSES.register_module()
class FusedOptim(ConfigPass):
    """One fused step for all parameters of equal settings, with clipping.

    Where ``paramwise_cfg`` is given, parameters that modules share are put
    into one group (``bypass_duplicate``), which stock refuses.

    Options:
        fused, merge, on_nonfinite: see :class:`mmturbox.optim.OptimWrapper`.
    """
    name = 'optim_wrapper'
    side = 'system'
    parity = 'close'
    changes = ('optim_wrapper.type', 'optim_wrapper.fused',
               'optim_wrapper.merge', 'optim_wrapper.on_nonfinite',
               'optim_wrapper.paramwise_cfg.bypass_duplicate')
    options = dict(fused=True, merge=True, on_nonfinite='skip')

    def plan(self, cfg: Any, env: Environment,
             **options) -> list[Set] | Declined:
        if options['on_nonfinite'] not in ('skip', 'raise'):
            raise ValueError('turbo.optim_wrapper.on_nonfinite must be '
                             f"'skip' or 'raise', got "
                             f'{options["on_nonfinite"]!r}')
        wrapper = cfg.get('optim_wrapper')
        if not isinstance(wrapper, dict):
            return Declined('no optim_wrapper in the config')
        if not isinstance(wrapper.get('optimizer'), dict):
            return Declined('several optimizers, or one that is already built')
        if wrapper.get('type') == WRAPPER:
            return []
        if 'type' in wrapper and not type_is(wrapper, 'mmengine.OptimWrapper'):
            return Declined(f'optim_wrapper.type is {wrapper["type"]}')
        if type_is(
                cfg.get('model_wrapper_cfg'), 'MMFullyShardedDataParallel',
                'FullyShardedDataParallel'):
            return Declined('parameters are sharded by model_wrapper_cfg')
        reason = _why_not(wrapper['optimizer'], env)
        if reason:
            return Declined(reason)
        edits = [Set('optim_wrapper.type', WRAPPER)]
        edits += [
            Set(('optim_wrapper', key), value)
            for key, value in options.items() if value != self.options[key]
        ]
        return edits + self._for_shared_parameters(wrapper)

    @staticmethod
    def _for_shared_parameters(wrapper: dict) -> list[Set]:
        """Tied parameters go into one group; stock ends in an error."""
        paramwise = wrapper.get('paramwise_cfg')
        constructor = wrapper.get('constructor',
                                  'DefaultOptimWrapperConstructor')
        if (not paramwise or 'bypass_duplicate' in paramwise
                or constructor != 'DefaultOptimWrapperConstructor'):
            return []
        return [Set('optim_wrapper.paramwise_cfg.bypass_duplicate', True)]
