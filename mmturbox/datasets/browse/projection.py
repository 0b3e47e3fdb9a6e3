"""From metres to pixels of a camera image.

Frame ``cam``: x right, y down, z forward. Pixels: whole numbers are centres.
"""

import numpy as np

# Nearer than this in front of a camera nothing is drawn, metres.
NEAR = .3


def image_matrix(cam2img: np.ndarray, scale: float) -> np.ndarray:
    """(3, 3) intrinsic matrix of an image that was resized by ``scale``."""
    # The centre of the first pixel is half a pixel from the image's edge.
    shift = (scale - 1) / 2
    return np.array([[scale, 0., shift], [0., scale, shift],
                     [0., 0., 1.]]) @ np.asarray(cam2img)[:3, :3]


def move(rigid: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(..., 3) points through a (4, 4) transform."""
    return points @ rigid[:3, :3].T + rigid[:3, 3]


def flatten(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(..., 3) in ``cam``, in front of it, to (..., 2) pixels."""
    image = points @ matrix.T
    return image[..., :2] / image[..., 2:]


def clip(segments: np.ndarray) -> np.ndarray:
    """What of (K, 2, 3) segments in ``cam`` lies beyond ``NEAR``."""
    depth = segments[..., 2] - NEAR
    segments, depth = (a[(depth > 0).any(1)] for a in (segments, depth))
    crossing = np.nonzero((depth <= 0).any(1))[0]
    share = depth[crossing, 0] / (depth[crossing, 0] - depth[crossing, 1])
    ends = segments[crossing]
    at = ends[:, 0] + share[:, None] * (ends[:, 1] - ends[:, 0])
    clipped = segments.copy()
    clipped[crossing, np.argmin(depth[crossing], axis=1)] = at
    return clipped


def in_image(uv: np.ndarray, width: int, height: int) -> np.ndarray:
    """Which of (K, P, 2) figures may touch the image."""
    size = np.array([width, height])
    return ~((uv < 0).all(1) | (uv >= size).all(1)).any(1)


def segments_of(line: np.ndarray, step: float) -> np.ndarray:
    """(K, 2, D) pieces of a (P, D) polyline, none longer than ``step``."""
    parts = np.linalg.norm(np.diff(line, axis=0), axis=1)
    counts = np.maximum(np.ceil(parts / step), 1).astype(np.int64)
    # Position along the line: the corner's number and the share beyond it.
    place = np.concatenate(
        [i + np.arange(n) / n for i, n in enumerate(counts)] + [[len(parts)]])
    corners = np.arange(len(line))
    dense = np.stack(
        [np.interp(place, corners, column) for column in line.T], -1)
    return np.stack([dense[:-1], dense[1:]], 1)


# Corners of a box: first the front face, then the rear one, each from the
# left one at the bottom around.
_SIGNS = np.array([(x, y, z) for x in (1, -1)
                   for y, z in ((1, -1), (-1, -1), (-1, 1), (1, 1))])
FRONT_EDGES = ((0, 1), (1, 2), (2, 3), (3, 0))
OTHER_EDGES = ((4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7))
FRONT_BOTTOM, REAR_BOTTOM = (0, 1), (5, 4)


def corners(boxes: np.ndarray) -> np.ndarray:
    """(N, 8, 3) corners of (N, 7) boxes, in the boxes' frame."""
    cos, sin = np.cos(boxes[:, 6]), np.sin(boxes[:, 6])
    local = _SIGNS * boxes[:, None, 3:6] / 2
    turned = np.stack([
        cos[:, None] * local[..., 0] - sin[:, None] * local[..., 1],
        sin[:, None] * local[..., 0] + cos[:, None] * local[..., 1],
        local[..., 2]
    ], -1)
    return turned + boxes[:, None, :3]
