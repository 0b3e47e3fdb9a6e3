"""Pass: losses."""

from mmturbox.registry import PASSES

from .operators import OperatorPass


@PASSES.register_module()
class Losses(OperatorPass):
    """Focal losses with weights and normaliser fused."""
    name = 'losses'
    parity = 'close'
    types = ('mmdet.FocalLoss', 'mmdet.GaussianFocalLoss')
