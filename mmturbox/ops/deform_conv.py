"""Deformable convolution, plain and modulated.

Definition: ``deform_conv2d`` (arXiv:1703.06211) and
``modulated_deform_conv2d`` (arXiv:1811.11168) of mmcv. Any batch size works;
there is no step that has to divide it.
"""

import torch
from torch import Tensor
from torch.nn.modules.utils import _pair

from ._library import define

_Size = int | tuple[int, int]


def _out_size(input: Tensor, weight: Tensor, stride: list[int],
              padding: list[int], dilation: list[int]) -> list[int]:
    return [(input.shape[2 + k] + 2 * padding[k] - dilation[k] *
             (weight.shape[2 + k] - 1) - 1) // stride[k] + 1
            for k in range(2)]


def _samples(input: Tensor, offset: Tensor, weight: Tensor, stride: list[int],
             padding: list[int], dilation: list[int], deform_groups: int):
    """Cells (4, B, G, taps, positions) with the number of cells for outside,
    and how far the samples are from the upper left ones."""
    (kh, kw), (H, W) = weight.shape[2:], input.shape[2:]
    out_h, out_w = _out_size(input, weight, stride, padding, dilation)
    shape = len(input), deform_groups, kh * kw, 2, out_h * out_w

    def along(k: int, kernel: int, out: int) -> Tensor:
        place = torch.arange(out, device=input.device) * stride[k]
        tap = torch.arange(kernel, device=input.device) * dilation[k]
        return tap[:, None] + place - padding[k]

    base_y = along(0, kh, out_h)[:, None, :, None].expand(kh, kw, out_h,
                                                          out_w)
    base_x = along(1, kw, out_w)[None, :, None].expand_as(base_y)
    y, x = ((base.reshape(kh * kw, -1) + place) for base, place in zip(
        (base_y, base_x), offset.reshape(shape).unbind(3), strict=True))
    inside = (y > -1) & (x > -1) & (y < H) & (x < W)
    y, x = torch.where(inside, y, 0), torch.where(inside, x, 0)
    y0, x0 = y.floor(), x.floor()
    cells = []
    for corner in range(4):
        cy, cx = y0.long() + (corner >> 1), x0.long() + (corner & 1)
        valid = inside & (cy >= 0) & (cx >= 0) & (cy < H) & (cx < W)
        cells.append(torch.where(valid, cy * W + cx, H * W))
    return torch.stack(cells), x - x0, y - y0


def _corner_values(input: Tensor, cells: Tensor,
                   deform_groups: int) -> Tensor:
    """(4, B, G, C / G, taps, positions)."""
    flat = input.flatten(2)
    flat = torch.cat((flat, flat.new_zeros(*flat.shape[:2], 1)), 2)
    flat = flat.unflatten(1, (deform_groups, -1))
    shape = cells.shape[1:3] + flat.shape[2:3] + cells.shape[3:]
    return torch.stack([
        flat.gather(3, c[:, :, None].expand(shape).flatten(3)).view(shape)
        for c in cells
    ])


def _corner_weights(lx: Tensor, ly: Tensor) -> Tensor:
    return torch.stack(((1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx),
                        ly * lx))


def _rows(weight: Tensor, groups: int) -> Tensor:
    """(groups, outputs, inputs times taps)."""
    return weight.flatten(1).unflatten(0, (groups, len(weight) // groups))


def _mask_of(mask: Tensor | None, lx: Tensor) -> Tensor | float:
    return 1.0 if mask is None else mask.reshape(lx.shape)


def deform_conv2d_reference(input: Tensor, offset: Tensor,
                            mask: Tensor | None, weight: Tensor,
                            stride: list[int], padding: list[int],
                            dilation: list[int], groups: int,
                            deform_groups: int) -> Tensor:
    dtype = input.dtype
    input, offset, mask, weight = _compute(input, offset, mask, weight)
    out_size = _out_size(input, weight, stride, padding, dilation)
    cells, lx, ly = _samples(input, offset, weight, stride, padding, dilation,
                             deform_groups)
    values = _corner_values(input, cells, deform_groups)
    share = _corner_weights(lx, ly) * _mask_of(mask, lx)
    columns = (values * share[:, :, :, None]).sum(0)
    rows = _rows(weight, groups)
    out = rows @ columns.reshape(len(input), groups, rows.shape[2],
                                 lx.shape[-1])
    return out.reshape(len(input), len(weight), *out_size).to(dtype)


def deform_conv2d_backward_reference(
        grad: Tensor, input: Tensor, offset: Tensor, mask: Tensor | None,
        weight: Tensor, stride: list[int], padding: list[int],
        dilation: list[int], groups: int, deform_groups: int,
        with_input: bool,
        with_weight: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = input.dtype
    grad, input, offset, mask, weight = _compute(grad, input, offset, mask,
                                                 weight)
    B, rows = len(input), _rows(weight, groups)
    grad = grad.flatten(2).unflatten(1, rows.shape[:2])
    cells, lx, ly = _samples(input, offset, weight, stride, padding, dilation,
                             deform_groups)
    values = _corner_values(input, cells, deform_groups)
    share, m = _corner_weights(lx, ly), _mask_of(mask, lx)
    empty = input.new_empty(0)
    grads = [empty, empty, empty, empty]
    if with_weight:
        columns = (values * (share * m)[:, :, :, None]).sum(0)
        columns = columns.reshape(B, groups, rows.shape[2], lx.shape[-1])
        grads[3] = (grad @ columns.transpose(2, 3)).sum(0).view_as(weight)
    if with_input:
        columns = (rows.transpose(1, 2) @ grad).view(values.shape[1:])
        dot = (values * columns).sum(3)
        slope_x = (1 - ly) * (dot[1] - dot[0]) + ly * (dot[3] - dot[2])
        slope_y = (1 - lx) * (dot[2] - dot[0]) + lx * (dot[3] - dot[1])
        grads[1] = torch.stack((slope_y * m, slope_x * m),
                               3).reshape(offset.shape)
        if mask is not None:
            grads[2] = (share * dot).sum(0).reshape(mask.shape)
        flat = input.new_zeros(B, deform_groups, values.shape[3],
                               input.shape[2] * input.shape[3] + 1)
        for corner in range(4):
            part = columns * (share[corner] * m)[:, :, None]
            index = cells[corner][:, :, None].expand(part.shape)
            flat.scatter_add_(3, index.flatten(3), part.flatten(3))
        grads[0] = flat[..., :-1].reshape(input.shape)
    return tuple(g.contiguous().to(dtype) for g in grads)


def _compute(*tensors: Tensor | None) -> list[Tensor | None]:
    half = (torch.float16, torch.bfloat16)
    return [t.float() if t is not None and t.dtype in half else t
            for t in tensors]


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.options = inputs[4:]


def _backward(ctx, grad: Tensor):
    needs = ctx.needs_input_grad
    found = _conv_backward(grad, *ctx.saved_tensors, *ctx.options,
                           any(needs[:3]), needs[3])
    grads = [g if need else None
             for g, need in zip(found, needs, strict=False)]
    return *grads, None, None, None, None, None


def _fake(input, offset, mask, weight, stride, padding, dilation, groups,
          deform_groups):
    size = _out_size(input, weight, stride, padding, dilation)
    return input.new_empty(len(input), len(weight), *size)


def _fake_backward(grad, input, offset, mask, weight, stride, padding,
                   dilation, groups, deform_groups, with_input, with_weight):
    def like(tensor, wanted):
        return input.new_empty(tensor.shape if wanted else 0)

    return (like(input, with_input), like(offset, with_input),
            like(mask, with_input and mask is not None),
            like(weight, with_weight))


_OPTIONS = ('int[] stride, int[] padding, int[] dilation, int groups, '
            'int deform_groups')
_conv_backward = define(
    'deform_conv2d_backward(Tensor grad, Tensor input, Tensor offset, '
    f'Tensor? mask, Tensor weight, {_OPTIONS}, bool with_input, '
    'bool with_weight) -> (Tensor grad_input, Tensor grad_offset, '
    'Tensor grad_mask, Tensor grad_weight)',
    deform_conv2d_backward_reference,
    fake=_fake_backward)
_conv = define(
    'deform_conv2d(Tensor input, Tensor offset, Tensor? mask, '
    f'Tensor weight, {_OPTIONS}) -> Tensor',
    deform_conv2d_reference,
    fake=_fake,
    setup_context=_setup,
    backward=_backward)


def deform_conv2d(input: Tensor, offset: Tensor, weight: Tensor,
                  bias: Tensor | None = None, mask: Tensor | None = None,
                  stride: _Size = 1, padding: _Size = 0, dilation: _Size = 1,
                  groups: int = 1, deform_groups: int = 1) -> Tensor:
    """Convolve samples of ``input`` at shifted places.

    A sample between pixels is bilinear; pixels outside of the map are zero.

    Args:
        input: (B, C, H, W).
        offset: (B, deform_groups * kh * kw * 2, H', W') in pixels, along y,
            then along x, tap after tap; not a number takes the sample out.
        weight: (O, C / groups, kh, kw).
        bias: (O,) or None.
        mask: (B, deform_groups * kh * kw, H', W'), factors of the samples
            (the modulated form), or None.
        stride, padding, dilation: of the convolution, as in ``conv2d``.
        groups: of the convolution.
        deform_groups: groups of channels with offsets of their own.

    Returns:
        (B, O, H', W') in the dtype of ``offset``, to which the others are
        cast as in mmcv. Half precision is sampled in float32.

    Raises:
        ValueError: on a shape or device mismatch, and where the output
            would be empty.

    Note:
        Deterministic on the CPU, forward and backward. On CUDA the gradient
        of ``input`` adds by atomics in float32 (float64 for float64) and
        varies in the last bits; the others do not.
    """
    options = [list(_pair(o)) for o in (stride, padding, dilation)]
    _check(input, offset, mask, weight, options, groups, deform_groups)
    tensors = (t if t is None else t.to(offset.dtype)
               for t in (input, offset, mask, weight))
    out = _conv(*tensors, *options, groups, deform_groups)
    if bias is None:
        return out
    return out + bias.to(out.dtype).view(-1, 1, 1)


def deform_conv2d_grads(
        grad: Tensor, input: Tensor, offset: Tensor, mask: Tensor | None,
        weight: Tensor, stride: list[int], padding: list[int],
        dilation: list[int], groups: int, deform_groups: int,
        with_input: bool = True, with_weight: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of input, offset, mask and weight, for callers with a
    backward pass of their own; empty where not wanted."""
    return _conv_backward(grad, input, offset, mask, weight, stride, padding,
                          dilation, groups, deform_groups, with_input,
                          with_weight)


def _check(input: Tensor, offset: Tensor, mask: Tensor | None,
           weight: Tensor, options: list[list[int]], groups: int,
           deform_groups: int) -> None:
    if input.dim() != 4 or weight.dim() != 4:
        raise ValueError(
            'input and weight must have four dimensions, got shapes '
            f'{tuple(input.shape)} and {tuple(weight.shape)}')
    B, C = input.shape[:2]
    if groups < 1 or deform_groups < 1 or (
            C % groups or C % deform_groups or len(weight) % groups):
        raise ValueError(
            f'groups ({groups}) must divide the channels of input ({C}) and '
            f'output ({len(weight)}), deform_groups ({deform_groups}) those '
            'of input')
    if weight.shape[1] != C // groups:
        raise ValueError(f'weight must have {C // groups} channels for input '
                         f'of {C} channels in {groups} groups, got shape '
                         f'{tuple(weight.shape)}')
    size = _out_size(input, weight, *options)
    if min(size) < 1:
        raise ValueError(
            'convolution input is too small: its shape is '
            f'{tuple(input.shape)}, the kernel {tuple(weight.shape[2:])}, and '
            f'the output would be {size[0]}x{size[1]}')
    taps = deform_groups * weight.shape[2] * weight.shape[3]
    for name, tensor, channels in (('offset', offset, 2 * taps),
                                   ('mask', mask, taps)):
        if tensor is None:
            continue
        if tuple(tensor.shape) != (B, channels, *size):
            raise ValueError(
                f'{name} must have shape {(B, channels, *size)}, got '
                f'{tuple(tensor.shape)}')
        if not tensor.device == input.device == weight.device:
            raise ValueError(
                f'input, weight and {name} must share a device, got '
                f'{input.device}, {weight.device} and {tensor.device}')
