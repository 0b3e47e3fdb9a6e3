"""The three nearest points (PointNet++, arXiv:1706.02413).

Definition: mmcv's ``three_nn``; it is ``k_nearest`` with k = 3. A point that
is not finite is nobody's neighbour.
"""

from torch import Tensor

from ._points import check_clouds
from .knn import k_nearest


def three_nn(target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Find the three points of ``source`` nearest to each of ``target``.

    Args:
        target: (B, N, 3) floating; half precision is computed in float32.
        source: (B, M, 3) of the same dtype.

    Returns:
        Distances (B, N, 3) in the dtype of ``target``, nearest first, and
        int32 indices (B, N, 3). Where there are fewer than three points, the
        distance is infinite and the index 0.

    Raises:
        ValueError: on a wrong shape, dtype or device.

    Note:
        Deterministic and exact; ties by index. No gradient.
    """
    check_clouds(target=target, source=source)
    index, distance = k_nearest(source.detach(), target.detach(), 3)
    return distance.sqrt().to(target.dtype), index
