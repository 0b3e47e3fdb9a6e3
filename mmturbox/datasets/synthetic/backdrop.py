"""What a camera sees behind the boxes: sky, ground and haze.

The camera does not roll and the ground is flat, so all that matters here is
the same along a row of the image. Colours are blue, green, red.
"""

from functools import lru_cache

import numpy as np

from .cameras import Camera
from .texture import EARTH, LEVELS, Level

HAZE = np.array([214., 206., 198.])
_ZENITH = np.array([196., 150., 104.])
# Haze begins at this distance and thins out what lies behind with this
# length, metres.
_CLEAR, _HAZE_LENGTH = 20., 180.
# Farther ground is one colour.
_FAR = 320.
# Texture samples a pixel: wanted, and at most.
_SAMPLES, _MOST_SAMPLES = 8, 16


def clearness(distance: np.ndarray | float) -> np.ndarray | float:
    """Share of a surface's own colour that haze lets through."""
    return np.exp(-np.maximum(0., distance - _CLEAR) / _HAZE_LENGTH)


def ground_row(camera: Camera) -> int:
    """First row below the horizon, at most the image's height."""
    horizon = camera.principal[1] - camera.focal[1] * np.tan(camera.pitch)
    return int(np.clip(np.floor(horizon) + 1, 0, camera.image_size[1]))


def _row_distance(camera: Camera) -> np.ndarray:
    """Metres ahead on the ground for each row from ``ground_row`` on."""
    row = np.arange(ground_row(camera), camera.image_size[1])
    down = camera.pitch + np.arctan(
        (row - camera.principal[1]) / camera.focal[1])
    return camera.translation[2] / np.tan(np.maximum(down, 1e-6))


@lru_cache(maxsize=32)
def sky(camera: Camera) -> np.ndarray:
    """(H, W, 3) uint8: sky, and plain ground below the horizon; read-only."""
    width, height = camera.image_size
    first = ground_row(camera)
    rows = np.empty((height, 3))
    # Brightest at the horizon, a third of the way to the zenith at the top.
    up = (first - np.arange(first)[:, None]) / camera.focal[1]
    rows[:first] = HAZE + (_ZENITH - HAZE) * np.minimum(1., 2. * up)
    rows[first:] = EARTH
    image = np.repeat(rows.astype(np.uint8)[:, None], width, 1)
    image.setflags(write=False)
    return image


@lru_cache(maxsize=32)
def _bands(camera: Camera) -> tuple[tuple[int, int, int, int], ...]:
    """First row, end row, level and samples a row, for all textured rows."""
    first, distance = ground_row(camera), _row_distance(camera)
    texels, reaches = (np.array(column)
                       for column in zip(*LEVELS, strict=True))
    # What one pixel covers on the ground, along and across the view.
    along = distance**2 / (camera.translation[2] * camera.focal[1])
    across = distance / camera.focal[0]
    # How far the row's ends are from the ego vehicle.
    widest = np.hypot(1., camera.image_size[0] / camera.focal[0] / 2)
    away = distance * widest + np.hypot(*camera.translation[:2])
    level = np.max([
        np.searchsorted(texels, along / _SAMPLES),
        np.searchsorted(texels, across),
        np.searchsorted(reaches, away)
    ], 0)
    level = np.minimum(level, len(LEVELS) - 1)
    samples = 2**np.ceil(np.log2(along / texels[level])).clip(
        0., np.log2(_MOST_SAMPLES)).astype(np.int64)
    key = np.stack([level, samples], 1)
    start = int(np.searchsorted(-distance, -_FAR))
    changes = start + 1 + np.nonzero(
        (key[start + 1:] != key[start:-1]).any(1))[0]
    edges = [start, *changes.tolist(), len(distance)]
    return tuple((first + a, first + b, int(level[a]), int(samples[a]))
                 for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a)


def draw_ground(canvas: np.ndarray, camera: Camera, global2img: np.ndarray,
                levels: list[Level]) -> None:
    """Draw the textures in perspective.

    Args:
        canvas: (H, W, 3) uint8, changed in place.
        global2img: (3, 4), see ``Camera.global2img``.
        levels: around the ego vehicle, see ``GroundTexture.around``.
    """
    import cv2
    ground2img = global2img[:, [0, 1, 3]]
    for low, high, index, samples in _bands(camera):
        level = levels[index]
        # Rows of a band, finer by ``samples``, to rows of the image.
        fine2img = np.diag([1., 1. / samples, 1.])
        fine2img[1, 2] = low + .5 / samples - .5
        fine2texture = np.linalg.inv(
            ground2img @ level.texture2ground()) @ fine2img
        size = (canvas.shape[1], (high - low) * samples)
        fine = cv2.warpPerspective(
            level.image,
            fine2texture,
            size,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=EARTH)
        if samples > 1:
            fine = cv2.resize(
                fine, (size[0], high - low), interpolation=cv2.INTER_AREA)
        canvas[low:high] = fine


def draw_haze(canvas: np.ndarray, camera: Camera) -> None:
    """Thin out the distant ground, in place."""
    first, distance = ground_row(camera), _row_distance(camera)
    count = int(np.searchsorted(-distance, -_CLEAR))
    clear = clearness(distance[:count, None, None]).astype(np.float32)
    part = canvas[first:first + count]
    part[:] = part * clear + HAZE.astype(np.float32) * (1 - clear)
