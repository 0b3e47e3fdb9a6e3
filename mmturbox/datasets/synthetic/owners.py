"""Which box each pixel of a camera shows."""

from collections.abc import Iterable, Iterator

import numpy as np

from .backdrop import ground_row
from .cameras import Camera
from .sight import Sight, clip_near, look_at

GROUND, SKY = -1, -2
# Binary digits of a pixel that OpenCV's drawing takes.
_SHIFT = 4


def owner_map(camera: Camera, ego2global: np.ndarray,
              boxes: np.ndarray) -> np.ndarray:
    """Whose pixel each is, exactly as ``Renderer.image`` paints it.

    Args:
        ego2global: (4, 4) pose at the exposure, upright on z = 0.
        boxes: (N, 7), see ``sight``.

    Returns:
        (H, W) int32: index into ``boxes``, ``GROUND`` or ``SKY``.
    """
    owners = _nobody(camera)
    for box, outlines in _outlines(camera, ego2global, boxes):
        for outline in outlines:
            fill(owners, outline, box)
    return owners


def visible_shares(cameras: Iterable[Camera], ego2global: np.ndarray,
                   boxes: np.ndarray) -> np.ndarray:
    """Share of each box's pixels in all images that nothing hides.

    What nuScenes' visibility stands for; small images (some 400 x 225) do.

    Returns:
        (N,) float64, 0 for boxes outside all images.
    """
    alone = np.zeros(len(boxes), dtype=np.int64)
    seen = np.zeros(len(boxes), dtype=np.int64)
    for camera in cameras:
        owners = _nobody(camera)
        for box, outlines in _outlines(camera, ego2global, boxes):
            for outline in outlines:
                fill(owners, outline, box)
            flat = np.concatenate(outlines) >> _SHIFT
            (left, top), (right, low) = np.maximum(flat.min(0) - 1, 0), (
                np.maximum(flat.max(0) + 3, 0))
            alone[box] += np.count_nonzero(
                owners[top:low, left:right] == box)
        seen += np.bincount(owners[owners >= 0], minlength=len(boxes))
    return np.divide(seen, alone, out=np.zeros(len(boxes)), where=alone > 0)


def look_from(camera: Camera, ego2global: np.ndarray,
              boxes: np.ndarray) -> Sight:
    """What ``camera`` sees of ``boxes`` (N, 7)."""
    eye = (ego2global @ camera.cam2ego)[:3, 3]
    return look_at(boxes, camera.global2img(ego2global), eye,
                   camera.image_size)


def subpixels(polygon: np.ndarray) -> np.ndarray:
    """(P, 3) u w, v w, w to (P, 2) as OpenCV's drawing takes it."""
    flat = polygon[:, :2] / polygon[:, 2:]
    return np.rint(flat * (1 << _SHIFT)).astype(np.int32)


def fill(canvas: np.ndarray, polygon: np.ndarray,
         colour: float | list[float]) -> None:
    """Fill a convex (P, 2) polygon in sub-pixels, if anything is left."""
    import cv2
    if len(polygon):
        cv2.fillConvexPoly(canvas, polygon, colour, cv2.LINE_8, _SHIFT)


def _nobody(camera: Camera) -> np.ndarray:
    width, height = camera.image_size
    owners = np.full((height, width), SKY, dtype=np.int32)
    owners[ground_row(camera):] = GROUND
    return owners


def _outlines(
        camera: Camera, ego2global: np.ndarray,
        boxes: np.ndarray) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Box and (P, 2) sub-pixels of its visible faces, back to front."""
    sight = look_from(camera, ego2global, boxes)
    for box in sight.order:
        yield box, [
            subpixels(clip_near(outline))
            for outline in sight.corners[box, sight.visible[box]]
        ]
