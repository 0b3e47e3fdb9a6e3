"""mmcv's calls for synchronised batch norm and biased leaky ReLU."""

import torch
from torch import Tensor

from ._provided import provides
from ._sampling import full


@provides
def sync_bn_forward_mean(input: Tensor, mean: Tensor) -> None:
    """Means over (N, C, pixels) of each channel."""
    mean.copy_(full(input).mean((0, 2)))


@provides
def sync_bn_forward_var(input: Tensor, mean: Tensor, var: Tensor) -> None:
    """Mean squares around ``mean``, which may be of other batches too."""
    var.copy_((full(input) - mean[:, None]).square().mean((0, 2)))


@provides
def sync_bn_forward_output(input: Tensor, mean: Tensor, var: Tensor,
                           weight: Tensor | None, bias: Tensor | None,
                           running_mean: Tensor | None,
                           running_var: Tensor | None, norm: Tensor,
                           std: Tensor, output: Tensor, eps: float,
                           momentum: float | Tensor,
                           group_size: int) -> None:
    """Normalise, and update the running statistics where there are any."""
    std.copy_((var + eps).sqrt())
    norm.copy_((full(input) - mean[:, None]) / std[:, None])
    output.copy_(
        norm if weight is None else norm * weight[:, None] + bias[:, None])
    if running_mean is None:
        return
    count = input.shape[0] * input.shape[2] * group_size
    unbiased = var * (count / (count - 1)) if count > 1 else var
    for running, new in ((running_mean, mean), (running_var, unbiased)):
        running.copy_(momentum * new + (1 - momentum) * running)


@provides
def sync_bn_backward_param(grad_output: Tensor, norm: Tensor,
                           grad_weight: Tensor, grad_bias: Tensor) -> None:
    grad = full(grad_output)
    grad_weight.copy_((grad * norm).sum((0, 2)))
    grad_bias.copy_(grad.sum((0, 2)))


@provides
def sync_bn_backward_data(grad_output: Tensor, weight: Tensor,
                          grad_weight: Tensor, grad_bias: Tensor,
                          norm: Tensor, std: Tensor,
                          grad_input: Tensor) -> None:
    count = norm.shape[0] * norm.shape[2]
    shared = (grad_weight[:, None] * norm + grad_bias[:, None]) / count
    grad_input.copy_(
        (full(grad_output) - shared) * (weight / std)[:, None])


@provides
def fused_bias_leakyrelu(input: Tensor, bias: Tensor, empty: Tensor, act: int,
                         grad: int, alpha: float, scale: float) -> Tensor:
    """Scaled activation of ``input`` plus a bias for each channel.

    Args:
        input: (N, C, ...).
        bias: (C,), or empty.
        empty: with ``grad`` 1 the result of the forward pass, whose sign
            chooses the slope.
        act: 1 is linear, 3 leaky ReLU of slope ``alpha``.
        grad: order of the derivative; ``input`` is the gradient for 1.
    """
    value = full(input)
    if bias.numel():
        value = value + full(bias).view(-1, *[1] * (value.dim() - 2))
    if grad == 2:
        value = torch.zeros_like(value)
    elif act == 3:
        sign = value if grad == 0 else empty
        value = torch.where(sign > 0, value, value * alpha)
    return (value * scale).to(input.dtype)
