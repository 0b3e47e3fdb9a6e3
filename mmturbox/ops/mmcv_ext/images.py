"""mmcv's calls for dense heads: focal losses and RoI align."""

import torch
from torch import Tensor

from .. import focal_loss
from ..roi_align import roi_align_backward as roi_align_backward_op
from ..roi_align import roi_align_forward as roi_align_forward_op
from ._provided import provides


@provides
def sigmoid_focal_loss_forward(input: Tensor, target: Tensor, weight: Tensor,
                               output: Tensor, gamma: float,
                               alpha: float) -> None:
    output.copy_(
        focal_loss.sigmoid_focal_loss(
            input, target, gamma, alpha,
            weight if weight.numel() else None, 'none'))


@provides
def sigmoid_focal_loss_backward(input: Tensor, target: Tensor, weight: Tensor,
                                grad_input: Tensor, gamma: float,
                                alpha: float) -> None:
    with torch.enable_grad():
        logits = input.detach().requires_grad_()
        loss = focal_loss.sigmoid_focal_loss(
            logits, target, gamma, alpha,
            weight if weight.numel() else None, 'sum')
    grad_input.copy_(torch.autograd.grad(loss, logits)[0])


@provides
def softmax_focal_loss_forward(input: Tensor, target: Tensor, weight: Tensor,
                               output: Tensor, gamma: float,
                               alpha: float) -> None:
    """``input`` is the softmax already."""
    loss, _ = focal_loss.focal_of_probability(input, target, weight, gamma,
                                              alpha)
    output.copy_(loss)


@provides
def softmax_focal_loss_backward(input: Tensor, target: Tensor, weight: Tensor,
                                buff: Tensor, grad_input: Tensor,
                                gamma: float, alpha: float) -> None:
    """``input`` is the softmax already; ``buff`` is left as it is."""
    _, slope = focal_loss.focal_of_probability(input, target, weight, gamma,
                                               alpha)
    classes = torch.arange(input.shape[1], device=input.device)
    label = target[:, None] == classes
    grad_input.copy_(slope[:, None] * (label.to(input.dtype) - input))


@provides
def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor,
                      argmax_y: Tensor, argmax_x: Tensor, aligned_height: int,
                      aligned_width: int, spatial_scale: float,
                      sampling_ratio: int, pool_mode: int,
                      aligned: bool) -> None:
    results = roi_align_forward_op(input, rois, aligned_height, aligned_width,
                                   float(spatial_scale), sampling_ratio,
                                   pool_mode, aligned)
    for buffer, result in zip((output, argmax_y, argmax_x), results,
                              strict=True):
        buffer.copy_(result)


@provides
def roi_align_backward(grad_output: Tensor, rois: Tensor, argmax_y: Tensor,
                       argmax_x: Tensor, grad_input: Tensor,
                       aligned_height: int, aligned_width: int,
                       spatial_scale: float, sampling_ratio: int,
                       pool_mode: int, aligned: bool) -> None:
    grad_input.copy_(
        roi_align_backward_op(grad_output, rois, argmax_y, argmax_x,
                              list(grad_input.shape), float(spatial_scale),
                              sampling_ratio, pool_mode, aligned))
