"""Pass: points."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class Points(OperatorPass):
    """Point sampling, grouping and pooling."""
    name = 'points'
    parity = 'close'
