"""mmcv's calls for rotated detectors, in plain PyTorch.

RoI align of rotated boxes (detectron2) and its rotation-invariant form
(ReDet, arXiv:2103.07733), feature refinement (R3Det, arXiv:1908.05612),
active rotating filters (arXiv:1701.01833).
"""

from math import pi

import torch
from torch import Tensor

from ._provided import provides
from ._sampling import (
    bilinear_sum,
    bin_samples,
    fill_gradients,
    full,
    pool_bins,
)


def _pool_rotated(features: Tensor, rois: Tensor, pooled_height: int,
                  pooled_width: int, spatial_scale: float, ratio: int,
                  aligned: bool, at_least: float, clockwise: bool) -> Tensor:
    """(R, 6) boxes: image, centre x, y, width, height, radians."""
    rois = full(rois)
    centre = rois[:, 1:3] * spatial_scale - (0.5 if aligned else 0)
    width, height = (rois[:, 3:5] * spatial_scale).clamp(min=at_least).unbind(
        1)
    rows, *count_h = bin_samples(height, pooled_height, ratio)
    columns, *count_w = bin_samples(width, pooled_width, ratio)
    angle = -rois[:, 5] if clockwise else rois[:, 5]
    cos, sin, centre_x, centre_y = (
        t.view(-1, 1, 1, 1, 1)
        for t in (angle.cos(), angle.sin(), *centre.unbind(1)))
    local_y = (rows - height[:, None, None] / 2)[:, :, None, :, None]
    local_x = (columns - width[:, None, None] / 2)[:, None, :, None]
    return pool_bins(features, rois[:, 0],
                     local_y * cos - local_x * sin + centre_y,
                     local_y * sin + local_x * cos + centre_x, count_h,
                     count_w)


def _roi_align_rotated(features: Tensor, rois: Tensor, pooled_height: int,
                       pooled_width: int, spatial_scale: float,
                       sampling_ratio: int, aligned: bool,
                       clockwise: bool) -> Tensor:
    return _pool_rotated(features, rois, pooled_height, pooled_width,
                         spatial_scale, sampling_ratio, aligned,
                         float('-inf') if aligned else 1, clockwise)


@provides
def roi_align_rotated_forward(input: Tensor, rois: Tensor, output: Tensor,
                              pooled_height: int, pooled_width: int,
                              spatial_scale: float, sampling_ratio: int,
                              aligned: bool, clockwise: bool) -> None:
    output.copy_(
        _roi_align_rotated(
            full(input), rois, pooled_height, pooled_width, spatial_scale,
            sampling_ratio, aligned, clockwise))


@provides
def roi_align_rotated_backward(rois: Tensor, grad_input: Tensor,
                               grad_output: Tensor, pooled_height: int,
                               pooled_width: int, spatial_scale: float,
                               sampling_ratio: int, aligned: bool,
                               clockwise: bool) -> None:
    """mmcv binds the tensors under each other's names.

    What it passes is the output's gradient, the RoIs, the buffer to fill.
    """
    top_grad, rois, bottom_grad = rois, grad_input, grad_output
    fill_gradients(
        lambda features: _roi_align_rotated(
            features, rois, pooled_height, pooled_width, spatial_scale,
            sampling_ratio, aligned, clockwise), [bottom_grad],
        [bottom_grad], top_grad)


def _riroi_align_rotated(features: Tensor, rois: Tensor, pooled_height: int,
                         pooled_width: int, spatial_scale: float,
                         num_samples: int, num_orientations: int,
                         clockwise: bool) -> Tensor:
    """Orientation channels are turned back by each RoI's angle, too."""
    pooled = _pool_rotated(features, rois, pooled_height, pooled_width,
                           spatial_scale, num_samples, False, 1, clockwise)
    turns = full(rois)[:, 5] * (num_orientations / (2 * pi))
    whole = turns.floor()
    part = (turns - whole).view(-1, 1, 1, 1, 1)
    orientation = torch.arange(num_orientations, device=rois.device)
    source = (orientation - whole.long()[:, None]) % num_orientations
    split = pooled.unflatten(1, (-1, num_orientations))

    def turned(source: Tensor) -> Tensor:
        return split.gather(
            2, source[:, None, :, None, None].expand(split.shape))

    mixed = ((1 - part) * turned(source)
             + part * turned((source + 1) % num_orientations))
    return mixed.flatten(1, 2)


@provides
def riroi_align_rotated_forward(features: Tensor, rois: Tensor,
                                output: Tensor, pooled_height: int,
                                pooled_width: int, spatial_scale: float,
                                num_samples: int, num_orientations: int,
                                clockwise: bool) -> None:
    output.copy_(
        _riroi_align_rotated(
            full(features), rois, pooled_height, pooled_width, spatial_scale,
            num_samples, num_orientations, clockwise))


@provides
def riroi_align_rotated_backward(top_grad: Tensor, rois: Tensor,
                                 bottom_grad: Tensor, pooled_height: int,
                                 pooled_width: int, spatial_scale: float,
                                 num_samples: int, num_orientations: int,
                                 clockwise: bool) -> None:
    fill_gradients(
        lambda features: _riroi_align_rotated(
            features, rois, pooled_height, pooled_width, spatial_scale,
            num_samples, num_orientations, clockwise), [bottom_grad],
        [bottom_grad], top_grad)


def _rotated_feature_align(features: Tensor, boxes: Tensor,
                           spatial_scale: float, points: int) -> Tensor:
    """Each pixel plus samples at the centre (and corners) of its box."""
    y, x, width, height, angle = full(boxes).flatten(0, 2).unbind(1)
    y, x = (y * spatial_scale)[:, None], (x * spatial_scale)[:, None]
    if points > 1:
        along = torch.stack([angle.cos(), angle.sin()])
        along = along * (width * (spatial_scale / 2))
        across = torch.stack([-angle.sin(), angle.cos()])
        across = across * (height * (spatial_scale / 2))
        corners = torch.stack([
            torch.zeros_like(along), along + across, across - along,
            -along - across, along - across
        ], -1)
        x, y = x + corners[0], y + corners[1]
    batch, _, rows, columns = features.shape
    image = torch.arange(batch, device=x.device)
    sums = bilinear_sum(features, image.repeat_interleave(rows * columns), y,
                        x)
    sums = sums.view(batch, rows, columns, features.shape[1])
    return features + sums.permute(0, 3, 1, 2)


@provides
def rotated_feature_align_forward(features: Tensor, best_bboxes: Tensor,
                                  output: Tensor, spatial_scale: float,
                                  points: int) -> None:
    output.copy_(
        _rotated_feature_align(
            full(features), best_bboxes, spatial_scale, points))


@provides
def rotated_feature_align_backward(top_grad: Tensor, best_bboxes: Tensor,
                                   bottom_grad: Tensor, spatial_scale: float,
                                   points: int) -> None:
    fill_gradients(
        lambda features: _rotated_feature_align(features, best_bboxes,
                                                spatial_scale, points),
        [bottom_grad], [bottom_grad], top_grad)


def _rotated_places(indices: Tensor) -> Tensor:
    """(rotations, entries): where each weight goes, from 1-based indices."""
    return indices.flatten(0, 2).t().long() - 1


@provides
def active_rotated_filter_forward(input: Tensor, indices: Tensor,
                                  output: Tensor) -> None:
    """(O, I, K, H, W) -> (O * rotations, I * K, H, W), K orientations."""
    places = _rotated_places(indices)
    weight = input.flatten(2)[:, None]
    weight = weight.expand(-1, len(places), -1, -1)
    places = places[None, :, None].expand(weight.shape)
    output.copy_(
        torch.empty_like(weight, memory_format=torch.contiguous_format)
        .scatter_(3, places, weight).view(output.shape))


@provides
def active_rotated_filter_backward(grad_out: Tensor, indices: Tensor,
                                   grad_in: Tensor) -> None:
    places = _rotated_places(indices)
    grad = grad_out.reshape(
        grad_in.shape[0], len(places), grad_in.shape[1], -1)
    places = places[None, :, None].expand(grad.shape)
    grad_in.copy_(grad.gather(3, places).sum(1).view(grad_in.shape))
