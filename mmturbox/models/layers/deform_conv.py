"""Twins of mmcv's deformable convolution layers.

Parameters, initialisation and loading of old weights are inherited. Any batch
size works, whatever ``im2col_step`` says, and each forward and backward pass
is one operator for the whole batch.
"""

import torch
from mmcv.ops import DeformConv2dPack, ModulatedDeformConv2dPack
from torch import Tensor

from mmturbox.ops import deform_conv2d
from mmturbox.registry import MODELS


@MODELS.register_module()
class DCN(DeformConv2dPack):
    """mmcv's ``DCN`` (arXiv:1703.06211) over the operator of mmturbox.

    Args:
        Those of ``DeformConv2dPack``, parameters and state_dict too.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H', W')."""
        return deform_conv2d(
            x,
            self.conv_offset(x),
            self.weight,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            deform_groups=self.deform_groups)


@MODELS.register_module()
class DCNv2(ModulatedDeformConv2dPack):
    """mmcv's ``DCNv2`` (arXiv:1811.11168) over the operator of mmturbox.

    Args:
        Those of ``ModulatedDeformConv2dPack``, parameters and state_dict
        too.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H', W')."""
        out = self.conv_offset(x)
        taps = out.shape[1] // 3
        return deform_conv2d(
            x,
            out[:, :2 * taps],
            self.weight,
            self.bias,
            torch.sigmoid(out[:, 2 * taps:]),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            deform_groups=self.deform_groups)
