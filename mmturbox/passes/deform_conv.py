"""Pass: deform_conv."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class DeformConv(OperatorPass):
    """Deformable convolution for the whole batch at once."""
    name = 'deform_conv'
    parity = 'close'
    types = ('mmcv.DCN', 'mmcv.DCNv2')
