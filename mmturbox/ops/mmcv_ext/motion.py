"""mmcv's calls for matching and shifting frames, in plain PyTorch.

Correlation volumes (FlowNet, arXiv:1504.06852) and temporal interlacing
(TIN, arXiv:2001.06499).
"""

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from ._provided import provides
from ._sampling import fill_gradients, full


def _correlation(input1: Tensor, input2: Tensor, kernel: tuple[int, int],
                 patch: tuple[int, int], padding: tuple[int, int],
                 dilation: tuple[int, int], dilation_patch: tuple[int, int],
                 stride: tuple[int, int]) -> Tensor:
    """Products of patches of two (N, C, H, W) maps that are zero outside.

    Returns:
        (N, patch_h, patch_w, out_h, out_w), one map a displacement.
    """
    height, width = input1.shape[2:]
    reach = [step * (size - 1) // 2
             for step, size in zip(dilation_patch, patch, strict=True)]
    padded = pad(input2, [reach[1]] * 2 + [reach[0]] * 2)
    maps = []
    for row in range(0, patch[0] * dilation_patch[0], dilation_patch[0]):
        for column in range(0, patch[1] * dilation_patch[1],
                            dilation_patch[1]):
            moved = padded[..., row:row + height, column:column + width]
            maps.append((input1 * moved).sum(1))
    products = torch.stack(maps, 1).flatten(0, 1)[:, None]
    sums = conv2d(products, products.new_ones(1, 1, *kernel), None, stride,
                  padding, dilation)
    return sums.view(len(input1), *patch, *sums.shape[2:])


@provides
def correlation_forward(input1: Tensor, input2: Tensor, output: Tensor,
                        kH: int, kW: int, patchH: int, patchW: int, padH: int,
                        padW: int, dilationH: int, dilationW: int,
                        dilation_patchH: int, dilation_patchW: int, dH: int,
                        dW: int) -> None:
    output.copy_(
        _correlation(
            full(input1), full(input2), (kH, kW), (patchH, patchW),
            (padH, padW), (dilationH, dilationW),
            (dilation_patchH, dilation_patchW), (dH, dW)))


@provides
def correlation_backward(grad_output: Tensor, input1: Tensor, input2: Tensor,
                         grad_input1: Tensor, grad_input2: Tensor, kH: int,
                         kW: int, patchH: int, patchW: int, padH: int,
                         padW: int, dilationH: int, dilationW: int,
                         dilation_patchH: int, dilation_patchW: int, dH: int,
                         dW: int) -> None:
    fill_gradients(
        lambda one, two: _correlation(
            one, two, (kH, kW), (patchH, patchW), (padH, padW),
            (dilationH, dilationW), (dilation_patchH, dilation_patchW),
            (dH, dW)), [input1, input2], [grad_input1, grad_input2],
        grad_output)


@provides
def tin_shift_forward(input: Tensor, shift: Tensor, output: Tensor) -> None:
    """Move each group of channels along time; what moves in is zero.

    Args:
        input: (N, T, C, pixels).
        shift: (N, groups) frames.
    """
    steps, channels = input.shape[1:3]
    per_group = channels // shift.shape[1]
    by = shift.long().repeat_interleave(per_group, 1)[:, None]
    source = torch.arange(steps, device=input.device)[:, None] - by
    inside = (source >= 0) & (source < steps)
    at = source.clamp(0, steps - 1)[..., None].expand(input.shape)
    output.copy_(torch.where(inside[..., None], input.gather(1, at), 0))


@provides
def tin_shift_backward(grad_output: Tensor, shift: Tensor,
                       grad_input: Tensor) -> None:
    """As mmcv: the gradient moves the way the values move.

    This is not the derivative, which moves back, but it is what mmcv's own
    test asks for.
    """
    tin_shift_forward(grad_output, shift, grad_input)
