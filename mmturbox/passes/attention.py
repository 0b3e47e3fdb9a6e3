"""Pass: attention."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class Attention(OperatorPass):
    """Multi-scale deformable attention without host checks."""
    name = 'attention'
    parity = 'close'
    types = ('mmcv.MultiScaleDeformableAttention', )
