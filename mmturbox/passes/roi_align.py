"""Pass: roi_align."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class RoIAlign(OperatorPass):
    """RoI align and RoI pooling."""
    name = 'roi_align'
    parity = 'close'
