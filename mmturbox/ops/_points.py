"""Checks and arithmetic that operators on point clouds share."""

import torch
from torch import Tensor

MAX_POINTS = 2**31 - 1
"""Indices of points are int32."""


def compute(tensor: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, others as they are."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.float() if half else tensor


def is_point(points: Tensor) -> Tensor:
    """(..., 3) -> (...), whether all three coordinates are finite."""
    return points.isfinite().all(-1)


def squared_distances(points: Tensor, centers: Tensor) -> Tensor:
    """(..., N, 3), (..., M, 3) -> (..., M, N), summed as natively."""
    x, y, z = (points[..., None, :, i] - centers[..., :, None, i]
               for i in range(3))
    return x * x + y * y + z * z


def check_clouds(**clouds: Tensor) -> None:
    """Same batch size, dtype and device, (B, N, 3) floating each.

    Raises:
        ValueError: naming the argument, with what it should be.
    """
    first_name, first = next(iter(clouds.items()))
    for name, cloud in clouds.items():
        if cloud.dim() != 3 or cloud.shape[-1] != 3 or (
                not cloud.is_floating_point()):
            raise ValueError(f'{name} must be floating (B, N, 3), got '
                             f'{cloud.dtype} {tuple(cloud.shape)}')
        if cloud.shape[1] > MAX_POINTS:
            raise ValueError(f'{name} has more points than an int32 counts')
        if cloud.shape[0] != first.shape[0]:
            raise ValueError(
                f'{first_name} and {name} must have the same batch size, got '
                f'{first.shape[0]} and {cloud.shape[0]}')
    check_alike(**clouds)


def check_alike(**tensors: Tensor) -> None:
    """Same dtype and device.

    Raises:
        ValueError: naming the two that differ.
    """
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.device != first.device or tensor.dtype != first.dtype:
            raise ValueError(
                f'{first_name} and {name} must share device and dtype, got '
                f'{first.device} {first.dtype} and {tensor.device} '
                f'{tensor.dtype}')


def as_indices(name: str, indices: Tensor, like: Tensor) -> Tensor:
    """``indices`` as int32, checked to lie on the device of ``like``.

    Raises:
        ValueError: on another dtype than int32 and int64, or device.
    """
    if indices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f'{name} must be int32 or int64, got '
                         f'{indices.dtype}')
    if indices.device != like.device:
        raise ValueError(f'{name} must lie on {like.device}, got '
                         f'{indices.device}')
    if indices.dtype == torch.int64:
        # What an int32 cannot hold is outside of every cloud: keep it so.
        indices = indices.clamp(-1, MAX_POINTS).int()
    return indices
