"""Pass: small_matrix."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class SmallMatrix(OperatorPass):
    """Inverses of small matrices in closed form, without a host check."""
    name = 'small_matrix'
    parity = 'close'
