"""mmcv's calls for deformable convolution.

mmcv's own wrapper of the plain form still asks for a batch that its
``im2col_step`` divides; here any step gives the same.
"""

from torch import Tensor

from .. import deform_conv
from ._provided import provides


@provides
def deform_conv_forward(input: Tensor, weight: Tensor, offset: Tensor,
                        output: Tensor, columns: Tensor, ones: Tensor,
                        kW: int, kH: int, dW: int, dH: int, padW: int,
                        padH: int, dilationW: int, dilationH: int, group: int,
                        deformable_group: int, im2col_step: int) -> None:
    output.copy_(
        deform_conv.deform_conv2d(input, offset, weight, None, None, (dH, dW),
                                  (padH, padW), (dilationH, dilationW), group,
                                  deformable_group))


@provides
def deform_conv_backward_input(
        input: Tensor, offset: Tensor, gradOutput: Tensor, gradInput: Tensor,
        gradOffset: Tensor, weight: Tensor, columns: Tensor, kW: int, kH: int,
        dW: int, dH: int, padW: int, padH: int, dilationW: int,
        dilationH: int, group: int, deformable_group: int,
        im2col_step: int) -> None:
    """Adds to ``gradInput``, writes ``gradOffset``."""
    grads = deform_conv.deform_conv2d_grads(
        gradOutput, input, offset, None, weight, [dH, dW], [padH, padW],
        [dilationH, dilationW], group, deformable_group, with_weight=False)
    gradInput.add_(grads[0])
    gradOffset.copy_(grads[1])


@provides
def deform_conv_backward_parameters(
        input: Tensor, offset: Tensor, gradOutput: Tensor, gradWeight: Tensor,
        columns: Tensor, ones: Tensor, kW: int, kH: int, dW: int, dH: int,
        padW: int, padH: int, dilationW: int, dilationH: int, group: int,
        deformable_group: int, scale: float, im2col_step: int) -> None:
    """Adds to ``gradWeight``; only the shape of that is read."""
    grads = deform_conv.deform_conv2d_grads(
        gradOutput, input, offset, None, gradWeight, [dH, dW], [padH, padW],
        [dilationH, dilationW], group, deformable_group, with_input=False)
    gradWeight.add_(grads[3], alpha=scale)


@provides
def modulated_deform_conv_forward(
        input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor,
        offset: Tensor, mask: Tensor, output: Tensor, columns: Tensor,
        kernel_h: int, kernel_w: int, stride_h: int, stride_w: int,
        pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, group: int,
        deformable_group: int, with_bias: bool) -> None:
    output.copy_(
        deform_conv.deform_conv2d(input, offset, weight,
                                  bias if with_bias else None, mask,
                                  (stride_h, stride_w), (pad_h, pad_w),
                                  (dilation_h, dilation_w), group,
                                  deformable_group))


@provides
def modulated_deform_conv_backward(
        input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor,
        offset: Tensor, mask: Tensor, columns: Tensor, grad_input: Tensor,
        grad_weight: Tensor, grad_bias: Tensor, grad_offset: Tensor,
        grad_mask: Tensor, grad_output: Tensor, kernel_h: int, kernel_w: int,
        stride_h: int, stride_w: int, pad_h: int, pad_w: int,
        dilation_h: int, dilation_w: int, group: int, deformable_group: int,
        with_bias: bool) -> None:
    """Adds to the gradients of input, weight and bias, writes the others."""
    grads = deform_conv.deform_conv2d_grads(
        grad_output, input, offset, mask, weight, [stride_h, stride_w],
        [pad_h, pad_w], [dilation_h, dilation_w], group, deformable_group)
    grad_input.add_(grads[0])
    grad_offset.copy_(grads[1])
    grad_mask.copy_(grads[2])
    grad_weight.add_(grads[3])
    if with_bias:
        grad_bias.add_(grad_output.sum((0, 2, 3)))
