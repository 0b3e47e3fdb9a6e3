"""Suppression of points by their distance.

Definition: mmdet3d's ``circle_nms`` (numba, on the host), with the lower
index winning among equal scores.
"""

from torch import Tensor

from .batched_nms import multiclass_nms


def circle_nms(centers: Tensor,
               scores: Tensor,
               squared_distance: float,
               max_out: int | None = None) -> Tensor:
    """Drop each centre that has a better one nearby.

    Args:
        centers: (N, 2) floating point; x, y in metres.
        scores: (N,) floating point.
        squared_distance: in square metres; a centre goes where the square of
            its distance to a kept one is this or less. mmdet3d's
            ``min_radius`` and ``thresh`` are such squares.
        max_out: at most so many are kept.

    Returns:
        (K,) int64, the kept centres by falling score.

    Raises:
        ValueError: on a wrong shape, device or number.
        TypeError: on centres or scores that are not floating point.

    Note:
        Deterministic. No gradient. Waits for the device once, to read K; see
        :func:`.batched_nms.batched_nms_padded` for a batch without waiting.
    """
    return multiclass_nms(
        centers, scores, squared_distance, kind='circle', max_out=max_out)
