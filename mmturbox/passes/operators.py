"""What the passes of the operator families share.

A family puts ours in the place of stock types (the config names them) and of
stock functions (``operator_calls``, see ``mmturbox.runner.calls``).
"""

from typing import Any

from .base import ConfigPass, Declined, Environment, Set
from .twins import swap_types


def why_no_kernels(device: str) -> str | None:
    """Why our kernels do not run on ``device``, or None."""
    from mmturbox.ops import MISSING, native
    if native(device):
        return None
    return (f'mmturbox has no native operators for {device}: '
            f'{MISSING.get(device, "it is not supported")}')


class OperatorPass(ConfigPass):
    """A pass that swaps types and calls of one family.

    Class attributes:
        types: stock types ``'package.X'``; each has a twin ``'mmturbox.X'``.
    """
    side = 'model'
    changes = ('model.*.type', 'operator_calls.*')
    types: tuple[str, ...] = ()

    def why_not(self, cfg: Any, path: tuple) -> str | None:
        """Why the twin cannot serve the component at ``path``, or None."""
        return None

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        reason = why_no_kernels(env.device)
        if reason:
            return Declined(reason)
        edits, reasons = [], []
        for stock in self.types:
            found = swap_types(cfg, stock, self.why_not)
            if isinstance(found, Declined):
                reasons.append(found.reason)
            else:
                edits += found
        found = self._calls(cfg)
        if isinstance(found, str):
            reasons.append(found)
        else:
            edits += found
        return edits or Declined('; '.join(reasons))

    def _calls(self, cfg: Any) -> list[Set] | str:
        """The edit that replaces calls, or why there is nothing to do."""
        from mmturbox.ops import mmcv_ext
        from mmturbox.runner.calls import FAMILIES
        family = FAMILIES.get(self.name)
        if family is None:
            return 'no functions to replace'
        if not family.calls and not mmcv_ext.status().startswith('compiled'):
            return 'mmcv._ext is mmturbox\'s here, its kernels are in place'
        return [Set(('operator_calls', self.name), True)]
