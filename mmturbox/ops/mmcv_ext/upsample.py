"""mmcv's calls for CARAFE upsampling (arXiv:1905.02188), in plain PyTorch."""

import torch
from torch import Tensor
from torch.nn.functional import unfold

from ._provided import provides
from ._sampling import fill_gradients, full


def _carafe(features: Tensor, masks: Tensor, kernel_size: int,
            group_size: int, scale_factor: int) -> Tensor:
    """Each output pixel is a weighted sum around its source pixel.

    Args:
        features: (N, C, H, W); zero outside.
        masks: (N, groups * kernel_size ** 2, H * scale, W * scale).

    Returns:
        (N, C, H * scale, W * scale).
    """
    number, channels, height, width = features.shape
    taps = unfold(features, kernel_size, padding=kernel_size // 2)
    taps = taps.view(number, group_size, channels // group_size, -1, height,
                     width)
    weights = masks.view(number, group_size, -1, height, scale_factor, width,
                         scale_factor)
    output = torch.einsum('ngckhw,ngkhawb->ngchawb', taps, weights)
    return output.reshape(number, channels, height * scale_factor,
                          width * scale_factor)


@provides
def carafe_naive_forward(features: Tensor, masks: Tensor, output: Tensor,
                         kernel_size: int, group_size: int,
                         scale_factor: int) -> None:
    output.copy_(
        _carafe(
            full(features), full(masks), kernel_size, group_size,
            scale_factor))


@provides
def carafe_naive_backward(top_grad: Tensor, features: Tensor, masks: Tensor,
                          bottom_grad: Tensor, mask_grad: Tensor,
                          kernel_size: int, group_size: int,
                          scale_factor: int) -> None:
    fill_gradients(
        lambda features, masks: _carafe(features, masks, kernel_size,
                                        group_size, scale_factor),
        [features, masks], [bottom_grad, mask_grad], top_grad)


@provides
def carafe_forward(features: Tensor, masks: Tensor, rfeatures: Tensor,
                   routput: Tensor, rmasks: Tensor, output: Tensor,
                   kernel_size: int, group_size: int,
                   scale_factor: int) -> None:
    """Of the work buffers, ``rfeatures`` keeps the features for backward."""
    rfeatures.copy_(features)
    carafe_naive_forward(features, masks, output, kernel_size, group_size,
                         scale_factor)


@provides
def carafe_backward(top_grad: Tensor, rfeatures: Tensor, masks: Tensor,
                    rtop_grad: Tensor, rbottom_grad_hs: Tensor,
                    rbottom_grad: Tensor, rmask_grad: Tensor,
                    bottom_grad: Tensor, mask_grad: Tensor, kernel_size: int,
                    group_size: int, scale_factor: int) -> None:
    """The work buffers are left as they are."""
    carafe_naive_backward(top_grad, rfeatures, masks, bottom_grad, mask_grad,
                          kernel_size, group_size, scale_factor)
