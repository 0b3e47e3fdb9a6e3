"""What the suppression operators share: argument checks and the loop."""

from collections.abc import Callable

import torch
from torch import Tensor


def check_boxes(name: str, boxes: Tensor, width: int) -> None:
    """Require floating-point (N, width) boxes."""
    if boxes.dim() != 2 or boxes.shape[1] != width:
        raise ValueError(f'{name} must have shape (N, {width}), got '
                         f'{tuple(boxes.shape)}')
    if not boxes.is_floating_point():
        raise TypeError(f'{name} must be floating point, got {boxes.dtype}')


def check_scores(boxes: Tensor, scores: Tensor) -> None:
    """Require one floating-point score a box, on the same device."""
    if scores.shape != boxes.shape[:1]:
        raise ValueError(f'scores must have shape ({boxes.shape[0]},), got '
                         f'{tuple(scores.shape)}')
    if not scores.is_floating_point():
        raise TypeError(f'scores must be floating point, got {scores.dtype}')
    if scores.device != boxes.device:
        raise ValueError('boxes and scores must share a device, got '
                         f'{boxes.device} and {scores.device}')


def widen(*tensors: Tensor) -> list[Tensor]:
    """The tensors without gradient, all in float32 or all in float64.

    Half precision is computed in float32, where IoUs near a threshold and
    coordinates beyond 256 still differ.
    """
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.detach().to(dtype) for tensor in tensors]


def score_order(scores: Tensor) -> Tensor:
    """(N,) indices by falling score; of equal scores the lower one first."""
    return scores.sort(descending=True, stable=True).indices


def greedy_groups(
        order: Tensor,
        suppressed: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    """Greedy suppression, the reference of every hard NMS.

    Args:
        order: (N,) indices by rank.
        suppressed: given one index and (K,) indices of lower rank, which of
            the latter the former suppresses, (K,) bool.

    Returns:
        One (1 + S,) tensor a kept box: its index, then those it suppressed,
        by rank.
    """
    groups = []
    while order.numel():
        first, rest = order[0], order[1:]
        gone = suppressed(first, rest)
        groups.append(torch.cat([order[:1], rest[gone]]))
        order = rest[~gone]
    return groups


def greedy_keep(order: Tensor,
                suppressed: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(K,) int64, the first of each of :func:`greedy_groups`."""
    groups = greedy_groups(order, suppressed)
    return torch.stack([group[0] for group in groups]) if groups else order


def new_indices(like: Tensor) -> Tensor:
    """Fake (K,) int64 indices, K known only from the data."""
    size = torch.library.get_ctx().new_dynamic_size()
    return like.new_empty((size, ), dtype=torch.int64)
