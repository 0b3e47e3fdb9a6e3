"""Pass: small_matrix."""

from typing import Any

from mmturbox.registry import PASSES

from .base import Declined, Environment, Set
from .operators import OperatorPass


@PASSES.register_module()
class SmallMatrix(OperatorPass):
    """Inverses of small matrices in closed form, without a host check."""
    name = 'small_matrix'
    parity = 'close'

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        if env.device == 'cpu':
            return Declined('on the CPU there is no wait to save, and a few '
                            'matrices are inverted as fast by stock')
        return super().plan(cfg, env)
