"""mmcv's calls that grow text regions from kernels, in numpy, on the CPU.

Progressive scale expansion (PSENet, arXiv:1903.12473) and pixel aggregation
(PAN, arXiv:1908.05900). Both are breadth-first: of several regions that
reach a pixel in one step, the one whose front pixel was queued first wins.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from ._provided import provides


def _grow(labels: np.ndarray, front: np.ndarray, offsets: np.ndarray,
          allowed: Callable) -> tuple[np.ndarray, np.ndarray]:
    """One step of the front; ``labels`` is changed in place.

    Args:
        labels: flat map with a border that is never allowed.
        front: places in it, in queue order.
        offsets: to the neighbours, in the order they are asked.
        allowed: (places, labels) -> which may be taken.

    Returns:
        New front in queue order, and which of ``front`` took each.
    """
    near = front[:, None] + offsets
    label = np.broadcast_to(labels[front][:, None], near.shape)
    free = (labels[near] == 0) & allowed(near, label)
    source, _ = free.nonzero()
    first = np.sort(np.unique(near[free], return_index=True)[1])
    taken = near[free][first]
    labels[taken] = label[free][first]
    return taken, source[first]


def _bordered(values: Tensor) -> np.ndarray:
    """A numpy copy with a border of zeros along the last two axes."""
    array = values.numpy()
    return np.pad(array, [(0, 0)] * (array.ndim - 2) + [(1, 1)] * 2)


@provides
def contour_expand(kernel_mask: Tensor, internal_kernel_label: Tensor,
                   min_kernel_area: int, kernel_num: int) -> list[list[int]]:
    """Expand labels through masks of growing kernels.

    Args:
        kernel_mask: (kernels, H, W) uint8, largest first; the last one is
            that of the labels.
        internal_kernel_label: (H, W) int32, 0 for none.
        min_kernel_area: smaller labels are dropped.
        kernel_num: labels are at most this.

    Returns:
        H rows of W labels.
    """
    labels = _bordered(internal_kernel_label)
    masks = _bordered(kernel_mask)
    wide = labels.shape[1]
    offsets = np.array([-wide, wide, -1, 1])
    flat = labels.reshape(-1)
    area = np.bincount(flat, minlength=kernel_num + 1)
    flat[area[flat] < min_kernel_area] = 0
    queue = flat.nonzero()[0]
    for mask in masks[:-1][::-1].reshape(len(masks) - 1, -1):
        rest = []
        while len(queue):
            taken, source = _grow(
                flat, queue, offsets,
                lambda places, _, mask=mask: mask[places] > 0)
            # Only pixels that took none go on to the next kernel.
            rest.append(np.delete(queue, source))
            queue = taken
        queue = np.concatenate(rest) if rest else queue
    return labels[1:-1, 1:-1].tolist()


@provides
def pixel_group(score: Tensor, mask: Tensor, embedding: Tensor,
                kernel_label: Tensor, kernel_contour: Tensor,
                kernel_region_label: int,
                distance_threshold: float) -> list[list[float]]:
    """Grow kernels to near pixels with a similar embedding.

    Args:
        score: (H, W) float32.
        mask: (H, W) bool, pixels that may be taken.
        embedding: (H, W, channels) float32.
        kernel_label: (H, W) int32, 0 for none.
        kernel_contour: (H, W) uint8, where kernels start to grow.
        kernel_region_label: a number in spite of its name: labels are less
            than this.
        distance_threshold: to the mean embedding of the kernel.

    Returns:
        A list for each label: mean score, pixels, then x and y of each.
    """
    labels = _bordered(kernel_label)
    flat, wide = labels.reshape(-1), labels.shape[1]
    values = np.pad(embedding.numpy(), [(1, 1), (1, 1), (0, 0)])
    values = values.reshape(flat.size, -1)
    count = np.bincount(flat, minlength=kernel_region_label)
    means = np.zeros((len(count), values.shape[1]), values.dtype)
    np.add.at(means, flat, values)
    means /= np.maximum(count, 1)[:, None].astype(values.dtype)
    inside = _bordered(mask).reshape(-1)

    def near_enough(places: np.ndarray, label: np.ndarray) -> np.ndarray:
        gap = means[label] - values[places]
        return inside[places] & ((gap**2).sum(-1) < distance_threshold**2)

    front = ((flat > 0) & (_bordered(kernel_contour).reshape(-1) > 0)
             ).nonzero()[0]
    while len(front):
        front, _ = _grow(flat, front, np.array([-1, 1, -wide, wide]),
                         near_enough)
    regions = []
    for label in range(kernel_region_label):
        y, x = (labels[1:-1, 1:-1] == label).nonzero()
        if label == 0 or not len(y):
            regions.append([0.0, 0.0])
            continue
        mean = float(score.numpy()[y, x].mean())
        places = np.stack([x, y], 1).reshape(-1).astype(float).tolist()
        regions.append([mean, float(len(y)), *places])
    return regions
