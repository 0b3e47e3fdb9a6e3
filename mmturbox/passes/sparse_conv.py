"""Pass: sparse_conv."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class SparseConv(OperatorPass):
    """Sparse convolution with shared rulebooks."""
    name = 'sparse_conv'
    parity = 'close'
