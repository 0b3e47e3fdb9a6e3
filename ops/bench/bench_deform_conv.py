"""Modulated deformable convolution against its columns in plain PyTorch.

The shape is a layer of stage three of a ResNet-101 with DCNv2, six cameras of
864 x 1600 pixels: 256 channels, maps of 54 x 100. mmcv's CPU kernel stands in
``baselines_deform_conv.cpp``: one image after the other, one column value at
a time, then a product.
"""

import ctypes
from collections.abc import Iterator

import torch
from harness import Case, baselines
from torch import Tensor

from mmturbox.ops import deform_conv2d
from mmturbox.ops.deform_conv import (
    deform_conv2d_backward_reference,
    deform_conv2d_reference,
)

PLACE = [1, 1], [1, 1], [1, 1], 1, 1


class _Plain(torch.autograd.Function):
    """The reference, with its gradient."""

    @staticmethod
    def forward(ctx, x, offset, mask, weight):
        ctx.save_for_backward(x, offset, mask, weight)
        return deform_conv2d_reference(x, offset, mask, weight, *PLACE)

    @staticmethod
    def backward(ctx, grad):
        return deform_conv2d_backward_reference(grad, *ctx.saved_tensors,
                                                *PLACE, True, True)


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _kernel(x: Tensor, offset: Tensor, mask: Tensor,
            weight: Tensor) -> Tensor:
    """mmcv's way: columns of an image, then the product."""
    (_, channels, height, width), taps = x.shape, 9
    columns = x.new_empty(channels * taps, height * width)
    out = []
    for image in range(len(x)):
        _kernel.columns(
            _pointer(x[image]), _pointer(offset[image]),
            _pointer(mask[image]),
            *map(ctypes.c_int64, (channels, height, width)),
            _pointer(columns))
        out.append(weight.flatten(1) @ columns)
    return torch.stack(out).view(len(x), len(weight), height, width)


def cases(device: str = 'cpu') -> Iterator[Case]:
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    leaves = [
        randn(6, 256, 54, 100),
        randn(6, 18, 54, 100) * 2,
        randn(6, 9, 54, 100).sigmoid(),
        randn(256, 256, 3, 3) * 0.02
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    grad = randn(6, 256, 54, 100)

    def ours() -> Tensor:
        x, offset, mask, weight = leaves
        return deform_conv2d(x, offset, weight, None, mask, padding=1)

    def both(forward):
        return torch.autograd.grad(forward(), leaves, grad)

    def plain() -> Tensor:
        return _Plain.apply(*leaves)

    def check() -> None:
        torch.testing.assert_close(ours(), plain(), rtol=1e-3, atol=1e-3)
        for a, b in zip(both(ours), both(plain), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)

    if device == 'cpu':
        _kernel.columns = baselines('deform_conv').modulated_columns
        detached = [leaf.detach() for leaf in leaves]

        def check_kernel() -> None:
            torch.testing.assert_close(ours(), _kernel(*detached), rtol=1e-3,
                                       atol=1e-3)

        yield Case('deformable convolution forward, mmcv\'s CPU kernel',
                   lambda: _kernel(*detached), ours, None, check_kernel)
    yield Case('deformable convolution forward, plain PyTorch', plain, ours,
               None, check)
    yield Case('deformable convolution forward+backward, plain PyTorch',
               lambda: both(plain), lambda: both(ours), None)
