"""RoI align (arXiv:1703.06870), average and maximum pooling.

Definition: mmcv's ``roi_align``. Two cases differ: a region without samples
(empty, inverted or not finite) gives zero also for the maximum, where mmcv
gives the lowest float; a batch index outside of the batch, where mmcv reads
out of bounds, is an error on the CPU and gives zero on CUDA.
"""

import math

import torch
from torch import Tensor
from torch.nn.modules.utils import _pair

from ._library import define

_MODES = {'max': 0, 'avg': 1}


def _compute(tensor: Tensor) -> Tensor:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


def _axis(low: Tensor, high: Tensor, bins: int, scale: float, ratio: int,
          aligned: bool) -> Tensor:
    """Sample coordinates (bins, samples) of one region along one axis."""
    offset = 0.5 if aligned else 0.0
    start = low * scale - offset
    extent = high * scale - offset - start
    if not aligned and not bool(extent >= 1):
        extent = torch.ones_like(extent)
    step = extent / bins
    samples = ratio
    if ratio <= 0:
        samples = math.ceil(step) if 0 < float(step) < 1e9 else 0
    index = torch.arange(bins, device=low.device, dtype=low.dtype)
    within = torch.arange(samples, device=low.device, dtype=low.dtype)
    return start + index[:, None] * step + (within + 0.5) * step / samples


def _split(value: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lower and upper pixel, and the weight of the upper one."""
    value = value.clamp(min=0)
    low = value.long().clamp(max=size - 1)
    weight = torch.where(low < size - 1, value - low, 0.0)
    return low, (low + 1).clamp(max=size - 1), weight


def _corners(y: Tensor, x: Tensor, height: int, width: int):
    """Positions (4, ...) in a flat map and weights (4, ...), 0 outside."""
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y0, y1, ly = _split(torch.where(inside, y, 0.0), height)
    x0, x1, lx = _split(torch.where(inside, x, 0.0), width)
    position = torch.stack((y0 * width + x0, y0 * width + x1,
                            y1 * width + x0, y1 * width + x1))
    weight = torch.stack(((1 - ly) * (1 - lx), (1 - ly) * lx,
                          ly * (1 - lx), ly * lx))
    return position, weight, inside


def _regions(rois: Tensor, batch: int, height: int, width: int, scale: float,
             ratio: int, aligned: bool):
    """Yield batch index, y and x of the samples (PH, PW, S) per region."""
    for roi in rois:
        index = int(roi[0])
        if not 0 <= index < batch:
            raise RuntimeError('roi_align: the batch index of a region is '
                               f'outside of the batch: {index} of {batch}')
        ys = _axis(roi[2], roi[4], height, scale, ratio, aligned)
        xs = _axis(roi[1], roi[3], width, scale, ratio, aligned)
        shape = (height, width, ys.shape[1], xs.shape[1])
        yield (index, ys[:, None, :, None].expand(shape).flatten(2),
               xs[None, :, None, :].expand(shape).flatten(2))


def roi_align_reference(input: Tensor, rois: Tensor, height: int, width: int,
                        spatial_scale: float, sampling_ratio: int,
                        pool_mode: int,
                        aligned: bool) -> tuple[Tensor, Tensor, Tensor]:
    maps = _compute(input)
    batch, channels, map_h, map_w = maps.shape
    out = maps.new_zeros(len(rois), channels, height, width)
    args = out.new_full((2, *out.shape), -1.0)
    for n, (index, y, x) in enumerate(
            _regions(rois.to(maps.dtype), batch, height, width, spatial_scale,
                     sampling_ratio, aligned)):
        if y.shape[2] == 0:
            continue
        position, weight, inside = _corners(y, x, map_h, map_w)
        # (C, 4, PH, PW, S)
        values = maps[index].flatten(1)[:, position]
        values = torch.where(inside, (values * weight).sum(1), 0.0)
        if pool_mode == _MODES['avg']:
            out[n] = values.mean(3)
        else:
            out[n], best = values.max(3)
            for arg, sample in zip(args, (y, x), strict=True):
                arg[n] = sample.expand_as(values).gather(
                    3, best[..., None]).squeeze(3)
    if pool_mode == _MODES['avg']:
        args = out.new_empty(2, 0)
    return out.to(input.dtype), args[0].clone(), args[1].clone()


def roi_align_backward_reference(grad: Tensor, rois: Tensor, arg_y: Tensor,
                                 arg_x: Tensor, shape: list[int],
                                 spatial_scale: float, sampling_ratio: int,
                                 pool_mode: int, aligned: bool) -> Tensor:
    from_bins = _compute(grad)
    batch, channels, map_h, map_w = shape
    out = from_bins.new_zeros(batch, channels, map_h * map_w)
    rois = rois.to(from_bins.dtype)
    for n, (index, y, x) in enumerate(
            _regions(rois, batch, *grad.shape[2:], spatial_scale,
                     sampling_ratio, aligned)):
        if y.shape[2] == 0:
            continue
        if pool_mode == _MODES['avg']:
            position, weight, inside = _corners(y, x, map_h, map_w)
            share = from_bins[n][..., None] / y.shape[2] * inside
            for k in range(4):
                out[index].index_add_(1, position[k].flatten(),
                                      (share * weight[k]).flatten(1))
        else:
            position, weight, inside = _corners(
                arg_y[n].to(out.dtype), arg_x[n].to(out.dtype), map_h, map_w)
            for k in range(4):
                out[index].scatter_add_(
                    1, position[k].flatten(1),
                    (from_bins[n] * weight[k] * inside).flatten(1))
    return out.view(shape).to(grad.dtype)


def _fake(input, rois, height, width, spatial_scale, sampling_ratio,
          pool_mode, aligned):
    out = input.new_empty(len(rois), input.shape[1], height, width)
    shape = out.shape if pool_mode == _MODES['max'] else (0, )
    compute = _compute(input).dtype
    return (out, input.new_empty(shape, dtype=compute),
            input.new_empty(shape, dtype=compute))


def _setup_context(ctx, inputs, output):
    input, rois, _, _, *ctx.options = inputs
    ctx.shape = list(input.shape)
    ctx.save_for_backward(rois, *output[1:])


def _backward(ctx, grad, *unused):
    grad_input = roi_align_backward(grad, *ctx.saved_tensors, ctx.shape,
                                    *ctx.options)
    return (grad_input, *([None] * 7))


_OPTIONS = ('float spatial_scale, int sampling_ratio, int pool_mode, '
            'bool aligned')
roi_align_backward = define(
    'roi_align_backward(Tensor grad, Tensor rois, Tensor arg_y, Tensor arg_x,'
    f' int[] shape, {_OPTIONS}) -> Tensor',
    roi_align_backward_reference,
    fake=lambda grad, rois, arg_y, arg_x, shape, *rest: grad.new_empty(shape))
roi_align_forward = define(
    'roi_align(Tensor input, Tensor rois, int height, int width, '
    f'{_OPTIONS}) -> (Tensor, Tensor, Tensor)',
    roi_align_reference,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward)


def roi_align(input: Tensor,
              rois: Tensor,
              output_size: int | tuple[int, int],
              spatial_scale: float = 1.0,
              sampling_ratio: int = 0,
              pool_mode: str = 'avg',
              aligned: bool = True) -> Tensor:
    """Pool a feature map over regions; signature as mmcv's.

    Args:
        input: (B, C, H, W) floating.
        rois: (R, 5); batch index, x1, y1, x2, y2 in input pixels before
            ``spatial_scale``.
        output_size: bins (PH, PW).
        spatial_scale: from the regions' pixels to those of the map.
        sampling_ratio: samples along a bin; 0 means as many as pixels.
        pool_mode: 'avg' or 'max' over the samples of a bin.
        aligned: shift by half a pixel; False is the older convention, in
            which a region is at least one pixel wide.

    Returns:
        (R, C, PH, PW) in the input's dtype.

    Raises:
        ValueError: on a wrong shape, dtype or mode.
        RuntimeError: on a batch index outside of the batch (CPU; on CUDA the
            region gives zero).

    Note:
        Deterministic on the CPU, and forward on CUDA, where backward adds up
        the gradient by atomics. No gradient for ``rois``. Averages on the
        CPU work on a copy of the maps with the channels last.
    """
    if pool_mode not in _MODES:
        raise ValueError(f"pool_mode must be 'avg' or 'max', got {pool_mode}")
    if input.dim() != 4 or not input.is_floating_point():
        raise ValueError('input must be floating (B, C, H, W), got '
                         f'{input.dtype} {tuple(input.shape)}')
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise ValueError('rois must have shape (R, 5), got '
                         f'{tuple(rois.shape)}')
    if rois.device != input.device:
        raise ValueError('input and rois must share a device, got '
                         f'{input.device} and {rois.device}')
    height, width = _pair(output_size)
    return roi_align_forward(input, rois, height, width, float(spatial_scale),
                             sampling_ratio, _MODES[pool_mode], aligned)[0]
