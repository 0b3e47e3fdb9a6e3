"""Pass: nms."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class NMS(OperatorPass):
    """NMS, rotated overlaps and boxes' IoU by mmturbox's kernels."""
    name = 'nms'
    parity = 'close'
