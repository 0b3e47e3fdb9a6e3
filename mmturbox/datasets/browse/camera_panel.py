"""One camera's image with what the labels and the map say it shows.

Boxes are drawn where they are at the LiDAR's time: in real recordings a
camera exposes some ten milliseconds off it, so that what moves fast has left
its box by a little. And they stand upright on the LiDAR, as info files have
them: its tilt lifts or lowers the ends of long ones by some centimetres.
"""

import cv2
import numpy as np

from . import draw
from .projection import (
    FRONT_BOTTOM,
    FRONT_EDGES,
    OTHER_EDGES,
    REAR_BOTTOM,
    clip,
    corners,
    flatten,
    image_matrix,
    in_image,
    move,
    segments_of,
)
from .samples import Camera, Objects, Sample
from .sensor_data import read_image
from .street_map import MapPatch
from .style import BOXES, EGO_WAY, LINES, OTHER

# Farther lines fall together at the horizon, metres.
MAP_SIGHT = 60.
# Boxes lower than this carry no name, pixels of a panel 450 high.
_NAMED = 22


class CameraPanel:
    """An image and drawing on it.

    Args:
        sample: the record.
        channel: camera.
        width: of the panel in pixels.
        allow_missing: see ``sensor_data``.

    Attributes:
        image: the panel.
        scale: of the image, 0 where it is missing and nothing is drawn.
    """

    def __init__(self,
                 sample: Sample,
                 channel: str,
                 width: int,
                 allow_missing: bool = False):
        self.channel = channel
        self.camera: Camera = sample.cameras[channel]
        self.image, self.scale = read_image(self.camera.path, width,
                                            allow_missing)
        self.matrix = image_matrix(self.camera.cam2img, self.scale)
        self.global2cam = self.camera.lidar2cam @ sample.global2lidar
        self._size = self.image.shape[1::-1]

    def outlines(self, boxes: np.ndarray) -> list[np.ndarray]:
        """The edges of (N, 7) boxes in ``lidar`` that the image may show.

        Returns:
            for each box (K, 2, 2) pixels; the front face's come first, then
            the mark from the middle to the front.
        """
        points = move(self.camera.lidar2cam, corners(boxes))
        edges = points[:, FRONT_EDGES + OTHER_EDGES]
        front = points[:, FRONT_BOTTOM].mean(1)
        middle = (front + points[:, REAR_BOTTOM].mean(1)) / 2
        mark = np.stack([middle, front], 1)[:, None]
        segments = np.concatenate([edges[:, :4], mark, edges[:, 4:]], 1)
        found = []
        for box in segments:
            uv = flatten(clip(box), self.matrix)
            whole = len(uv) and in_image(uv.reshape(1, -1, 2),
                                         *self._size)[0]
            found.append(uv if whole else np.zeros((0, 2, 2)))
        return found

    def draw_boxes(self, objects: Objects, text_size: float) -> None:
        """Far ones first; thin where no point was measured."""
        if not self.scale:
            return
        depth = move(self.camera.lidar2cam, objects.boxes[:, :3])[:, 2]
        outlines = self.outlines(objects.boxes)
        for i in np.argsort(-depth):
            uv = outlines[i]
            if not len(uv):
                continue
            colour = BOXES.get(objects.names[i], OTHER)
            thick = 1 + bool(objects.seen[i])
            draw.lines(self.image, uv, colour, 1)
            if depth[i] > 1:
                # All five of the front and its mark lie before the camera.
                draw.lines(self.image, uv[:5], colour, thick)
        taken: list[np.ndarray] = []
        for i in np.argsort(depth):
            if len(outlines[i]) and objects.seen[i]:
                self._name(objects, i, outlines[i], text_size, taken)

    def _name(self, objects: Objects, i: int, uv: np.ndarray, size: float,
              taken: list[np.ndarray]) -> None:
        """Name and track above a box, where no nearer one's name is."""
        low, high = uv.min((0, 1)), uv.max((0, 1))
        if high[1] - low[1] < _NAMED * len(self.image) / 450:
            return
        number = f' {objects.track[i]}' if objects.track[i] >= 0 else ''
        name = objects.names[i] + number
        extent = np.array(draw.text_size(name, size))
        at = np.array([low[0], low[1] - 4])
        at = np.clip(at, (2, extent[1] + 2), self._size - extent * (1, 0))
        place = np.stack([at - extent * (0, 1), at + extent * (1, 0)])
        if not any((place[0] < other[1]).all() and (other[0] < place[1]).all()
                   for other in taken):
            taken.append(place)
            draw.text(self.image, name, at, size,
                      BOXES.get(objects.names[i], OTHER), (255, 255, 255))

    def ground_lines(self, lines: list[np.ndarray]) -> np.ndarray:
        """(K, 2, 2) pixels of (P, 2) lines on z = 0 of the global frame.

        Pieces of half a metre, as far as ``MAP_SIGHT``.
        """
        if not lines:
            return np.zeros((0, 2, 2))
        pieces = np.concatenate([segments_of(line, .5) for line in lines])
        pieces = np.concatenate(
            [pieces, np.zeros_like(pieces[..., :1])], axis=-1)
        seen = move(self.global2cam, pieces)
        near = np.linalg.norm(seen, axis=-1).max(1) < MAP_SIGHT
        uv = flatten(clip(seen[near]), self.matrix)
        return uv[in_image(uv, *self._size)]

    def draw_map(self, patch: MapPatch) -> None:
        if self.scale:
            for kind, colour in LINES.items():
                draw.lines(self.image, self.ground_lines(patch.lines[kind]),
                           colour, 1)

    def draw_way(self, places: np.ndarray) -> None:
        """The ego vehicle's way to come, (P, >= 2) global."""
        if self.scale and len(places) > 1:
            draw.lines(self.image, self.ground_lines([places[:, :2]]),
                       EGO_WAY, 3)

    def draw_points(self, points: np.ndarray) -> None:
        """(P, 3) in ``lidar``, coloured by depth, red is near."""
        if not self.scale:
            return
        seen = move(self.camera.lidar2cam, points)
        seen = seen[seen[:, 2] > 1]
        seen = seen[np.argsort(-seen[:, 2])]
        shade = 255 - np.clip(255 * np.log(seen[:, 2]) / np.log(80), 0, 255)
        colours = cv2.applyColorMap(
            shade.astype(np.uint8).reshape(-1, 1), cv2.COLORMAP_TURBO)
        draw.points(self.image, flatten(seen, self.matrix),
                    colours.reshape(-1, 3), 2)

    def draw_label(self, text_size: float) -> None:
        draw.text(self.image, self.channel, (8, 8 + 26 * text_size),
                  text_size, (255, 255, 255), (0, 0, 0))
