"""Deformable attention of queries to the images that see them.

The camera cross-attention of BEVFormer (arXiv:2203.17270): a query is
averaged over the images that see it. Upstream pads the queries of each image
to the longest list; here hits, pairs of a query and an image, stand one after
the other.
"""

import torch
from torch import Tensor

from ._attention import check_hits, check_maps, check_samples
from .ms_deform_attn import ms_deform_attn_forward


def pack_hits(mask: Tensor,
              capacity: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """List the pairs of a query and an image that see each other.

    Args:
        mask: (N, I) bool; whether query n is seen in image i.
        capacity: room for hits, T; those that do not fit are left out, the
            last queries first. None takes as many as there are, which reads
            their number back to the host.

    Returns:
        (T,) int64 query and (T,) int64 image of each hit, sorted by query
        and then image, zero behind the last hit; and (N + 1,) int64 offsets:
        the hits of query n are those from ``offsets[n]`` to
        ``offsets[n + 1]``.

    Note:
        Deterministic. With a capacity nothing is read back to the host.
    """
    if mask.dim() != 2 or mask.dtype != torch.bool:
        raise ValueError('mask must be bool of shape (N, I), got '
                         f'{tuple(mask.shape)} {mask.dtype}')
    num_images = max(mask.shape[1], 1)
    ends = mask.flatten().cumsum(0)
    counts = mask.sum(1).cumsum(0)
    if capacity is None:
        capacity = int(counts[-1]) if len(counts) else 0
    offsets = torch.cat((counts.new_zeros(1), counts)).clamp(max=capacity)
    hit = torch.arange(1, capacity + 1, device=mask.device)
    place = torch.searchsorted(ends, hit)
    place = torch.where(hit <= offsets[-1], place, 0)
    return place // num_images, place % num_images, offsets


def ms_deform_attn_ragged(value: Tensor,
                          spatial_shapes: Tensor,
                          level_start_index: Tensor,
                          locations: Tensor,
                          weights: Tensor,
                          images: Tensor,
                          offsets: Tensor,
                          softmax: bool = False) -> Tensor:
    """Deformable attention of queries to the images that see them.

    A *hit* is a pair of a query and an image. The result of a query is the
    mean over its hits, zero without any.

    Args:
        value, spatial_shapes, level_start_index: as in
            :func:`ms_deform_attn`, with images as batch.
        locations: (T, H, L, P, 2) of the hits, sorted by query.
        weights: (T, H, L, P).
        images: (T,) int64 in [0, B); which image a hit reads.
        offsets: (N + 1,) int64; the hits of query n are those from
            ``offsets[n]`` to ``offsets[n + 1]``. Those behind the last are
            not read, so that T may be a bound and no count is needed on the
            host; :func:`pack_hits` makes such lists.
        softmax: take ``weights`` as logits.

    Returns:
        (N, H * C) in the dtype of ``value``.

    Raises:
        ValueError, RuntimeError: as :func:`ms_deform_attn`; on the CPU also
            RuntimeError on an image or an offset out of range, where CUDA
            leaves the hit out.

    Note:
        As :func:`ms_deform_attn`. The mean is taken in the order of hits.
    """
    check_maps(value, spatial_shapes, level_start_index, locations=locations,
               weights=weights, images=images, offsets=offsets)
    if locations.dim() != 5:
        raise ValueError('locations must have shape (T, H, L, P, 2), got '
                         f'{tuple(locations.shape)}')
    check_samples(value, len(spatial_shapes), locations, weights,
                   (len(locations), ))
    check_hits(len(locations), images, offsets)
    return ms_deform_attn_forward(value, spatial_shapes, level_start_index,
                                  locations, weights, images, offsets,
                                  softmax)
