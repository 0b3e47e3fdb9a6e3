"""Camera images of the synthetic world: painted ground, painted boxes.

Images are (H, W, 3) uint8 in blue, green, red, as OpenCV has them.
"""

from collections.abc import Sequence

import numpy as np

from .backdrop import HAZE, clearness, draw_ground, draw_haze, ground_row, sky
from .cameras import Camera
from .owners import fill, look_from, subpixels
from .sheets import Face, Look
from .sight import NEAR, Sight, clip_near, reaches
from .texture import GroundTexture

JPEG_QUALITY = 90

_SHADOW = .62
# Smaller polygons on a face, in pixels, are left out.
_SMALLEST = 1.2
# Standard deviation of the sensor's noise, and a tile of it.
_NOISE = 1.6
_NOISE_SIZE = (1024, 2048)


class Renderer:
    """Takes the pictures of one scene.

    Args:
        ground: of the city; may be shared by scenes.
        looks: one for each box of a frame, see ``appearance.Looks``.
        rng: for light and sensor noise.

    Note:
        The same arguments and calls give the same images, whatever the number
        of threads.
    """

    def __init__(self, ground: GroundTexture, looks: Sequence[Look],
                 rng: np.random.Generator) -> None:
        self.ground, self.looks = ground, looks
        azimuth, height = rng.uniform(-np.pi, np.pi), rng.uniform(.9, 1.2)
        self._sun = np.array([
            np.cos(azimuth) * np.cos(height),
            np.sin(azimuth) * np.cos(height),
            np.sin(height)
        ])
        self._light = rng.uniform(.88, 1.06)
        noise = rng.standard_normal((*_NOISE_SIZE, 3), dtype=np.float32)
        self._noise = (128.5 + _NOISE * noise).astype(np.uint8)

    def image(self, camera: Camera, ego2global: np.ndarray,
              boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One exposure.

        Args:
            ego2global: (4, 4) pose at the exposure, upright on z = 0.
            boxes: (N, 7) in the order of ``looks``: centre x, y, z, length,
                width, height, yaw; global frame, standing on z = 0.
            rng: for this image's noise.

        Returns:
            (H, W, 3) uint8.

        Raises:
            ValueError: if there is not one look for each box.
        """
        if len(boxes) != len(self.looks):
            raise ValueError(f'{len(self.looks)} looks for {len(boxes)} '
                             'boxes; give a box for each look')
        global2img = camera.global2img(ego2global)
        canvas = sky(camera).copy()
        levels = self.ground.around(*ego2global[:2, 3].tolist())
        draw_ground(canvas, camera, global2img, levels)
        self._draw_shadows(canvas, camera, global2img, boxes)
        draw_haze(canvas, camera)
        self._draw_boxes(canvas, camera, look_from(camera, ego2global, boxes))
        self._expose(canvas, rng)
        return canvas

    def _expose(self, canvas: np.ndarray, rng: np.random.Generator) -> None:
        """Light and sensor noise, in place."""
        import cv2
        height, width = canvas.shape[:2]
        tile = self._noise
        if width > tile.shape[1] or height > tile.shape[0]:
            tile = np.tile(tile, (-(-height // tile.shape[0]),
                                  -(-width // tile.shape[1]), 1))
        top = int(rng.integers(tile.shape[0] - height + 1))
        left = int(rng.integers(tile.shape[1] - width + 1))
        light = self._light * rng.uniform(.97, 1.03)
        cv2.addWeighted(canvas, light,
                        tile[top:top + height, left:left + width], 1., -128.,
                        canvas)

    def _draw_shadows(self, canvas: np.ndarray, camera: Camera,
                      global2img: np.ndarray, boxes: np.ndarray) -> None:
        import cv2
        first = ground_row(camera)
        mask = np.zeros(canvas.shape[:2], dtype=np.uint8)
        ground2img = global2img[:, [0, 1, 3]]
        shadows = _shadows(boxes, self._sun) @ ground2img.T
        for outline in shadows[reaches(shadows, camera.image_size)]:
            fill(mask, subpixels(clip_near(outline)), 1)
        part = canvas[first:]
        cv2.copyTo(
            cv2.convertScaleAbs(part, alpha=_SHADOW), mask[first:], part)

    def _draw_boxes(self, canvas: np.ndarray, camera: Camera,
                    sight: Sight) -> None:
        depth = sight.corners[..., 2]
        clear = clearness(depth.mean(-1))
        shade = .74 + .36 * np.maximum(0., sight.normal @ self._sun)
        smallest = _SMALLEST * np.maximum(
            depth.min(-1), .5) / max(camera.focal)
        for box in sight.order:
            for index in np.nonzero(sight.visible[box])[0].tolist():
                face = self.looks[box][index]
                chosen = face.extent > smallest[box, index]
                chosen[0] = True
                chosen = np.nonzero(chosen)[0]
                colours = face.colours[chosen] * shade[box, index]
                colours = np.minimum(colours, 255.) * clear[box, index]
                colours += HAZE * (1. - clear[box, index])
                outlines = _outlines(face, chosen.tolist(),
                                     sight.face2img[box, index],
                                     sight.corners[box, index])
                for outline, colour in zip(
                        outlines, colours.tolist(), strict=True):
                    fill(canvas, outline, colour)


def encode_jpeg(image: np.ndarray) -> bytes:
    """The file's bytes.

    Raises:
        RuntimeError: if the image cannot be encoded.
    """
    import cv2
    done, data = cv2.imencode('.jpg', image,
                              [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not done:
        raise RuntimeError(
            f'an image of shape {image.shape} cannot be encoded')
    return data.tobytes()


def _outlines(face: Face, chosen: list[int], face2img: np.ndarray,
              corners: np.ndarray) -> list[np.ndarray]:
    """Sub-pixels of the chosen polygons of a face, see ``Sight``."""
    if len(chosen) == 1:
        return [subpixels(clip_near(corners))]
    points = face.points @ face2img.T
    spans = [slice(face.stops[i], face.stops[i + 1]) for i in chosen]
    if corners[:, 2].min() >= NEAR:
        points = subpixels(points)
        return [points[span] for span in spans]
    return [subpixels(clip_near(points[span])) for span in spans]


def _shadows(boxes: np.ndarray, sun: np.ndarray) -> np.ndarray:
    """(N, 6, 3) outlines x, y, 1 of the boxes' shadows on the ground."""
    cos, sin = np.cos(boxes[:, 6]), np.sin(boxes[:, 6])
    axes = np.stack([np.stack([cos, sin], 1), np.stack([-sin, cos], 1)], 1)
    signs = np.array([[1., 1.], [-1., 1.], [-1., -1.], [1., -1.]])
    corners = boxes[:, None, :2] + (signs * boxes[:, None, 3:5] / 2) @ axes
    fall = -sun[:2] / sun[2] * boxes[:, 5:6]
    # The hull of a rectangle and its shifted copy: three corners of each,
    # the leading one being the farthest along the shift.
    lead = (corners * fall[:, None]).sum(-1).argmax(1)
    row = np.arange(len(boxes))[:, None]
    around = (lead[:, None] + np.array([-1, 0, 1])) % 4
    behind = (lead[:, None] + np.array([1, 2, 3])) % 4
    outline = np.concatenate([
        corners[row, around] + fall[:, None], corners[row, behind]
    ], 1)
    return np.concatenate([outline, np.ones((*outline.shape[:2], 1))], -1)
