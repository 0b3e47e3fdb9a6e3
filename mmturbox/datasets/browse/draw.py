"""Drawing with fractions of pixels, over OpenCV.

Points are (u, v) with whole numbers at the centres of pixels.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from .style import INK, Colour

# Binary digits of a pixel that OpenCV's drawing takes.
_SHIFT = 4
# Farther out OpenCV's integers could overflow.
_FAR = 1e6
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def _subpixels(uv: np.ndarray) -> np.ndarray:
    uv = np.clip(np.asarray(uv, dtype=np.float64), -_FAR, _FAR)
    return np.rint(uv * (1 << _SHIFT)).astype(np.int32)


def lines(image: np.ndarray,
          uv: np.ndarray | Sequence[np.ndarray],
          colour: Colour,
          width: int = 1,
          closed: bool = False) -> None:
    """Draw polylines: K of (P, 2), each of any length."""
    cv2.polylines(image, [_subpixels(line) for line in uv if len(line)],
                  closed, colour, width, cv2.LINE_AA, _SHIFT)


def fill(image: np.ndarray, rings: Sequence[np.ndarray],
         colour: Colour) -> None:
    """Fill a polygon, (P, 2) outlines of itself and of its holes."""
    cv2.fillPoly(image, [_subpixels(ring) for ring in rings], colour,
                 cv2.LINE_AA, _SHIFT)


def dots(image: np.ndarray, uv: np.ndarray, colour: Colour,
         radius: float) -> None:
    """Discs around (P, 2), radius in pixels."""
    size = round(radius * (1 << _SHIFT))
    for u, v in _subpixels(uv).tolist():
        cv2.circle(image, (u, v), size, colour, -1, cv2.LINE_AA, _SHIFT)


def arrow(image: np.ndarray, begin: np.ndarray, end: np.ndarray,
          colour: Colour, width: int) -> None:
    """An arrow whose head does not grow with its length."""
    length = float(np.hypot(*(end - begin)))
    if length > 1:
        tip = min(.5, (4 + 2 * width) / length)
        (u0, v0), (u1, v1) = _subpixels(np.stack([begin, end])).tolist()
        cv2.arrowedLine(image, (u0, v0), (u1, v1), colour, width,
                        cv2.LINE_AA, _SHIFT, tip)


def points(image: np.ndarray, uv: np.ndarray, colours: np.ndarray | Colour,
           size: int = 1) -> None:
    """Squares of ``size`` pixels around (P, 2), (P, 3) colours or one.

    Later ones cover earlier ones.
    """
    height, width = image.shape[:2]
    corner = np.rint(uv - (size - 1) / 2).astype(np.int64)
    colours = np.broadcast_to(np.asarray(colours, np.uint8), (len(uv), 3))
    for du in range(size):
        for dv in range(size):
            u, v = corner[:, 0] + du, corner[:, 1] + dv
            inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
            image[v[inside], u[inside]] = colours[inside]


def text_size(line: str, size: float) -> tuple[int, int]:
    """Width and height in pixels of what ``text`` writes."""
    return cv2.getTextSize(line, _FONT, size, 1)[0]


def text(image: np.ndarray,
         line: str,
         uv: Sequence[float],
         size: float = .5,
         colour: Colour = INK,
         halo: Colour | None = None) -> None:
    """Write one line whose base begins at ``uv``.

    Args:
        image: to write on.
        line: ASCII.
        uv: pixels.
        size: 1 is about 22 pixels high.
        colour: of the letters.
        halo: a rim that sets them off from a picture.
    """
    # OpenCV can write nothing else.
    line = line.encode('ascii', 'replace').decode()
    at = (round(float(uv[0])), round(float(uv[1])))
    for shade, width in ((halo, 3), (colour, 1)):
        if shade is not None:
            cv2.putText(image, line, at, _FONT, size, shade, width,
                        cv2.LINE_AA)


def blend(image: np.ndarray, over: np.ndarray, share: float) -> None:
    """Mix ``over`` into ``image`` in place."""
    cv2.addWeighted(over, share, image, 1 - share, 0, dst=image)


class BirdView:
    """A map-like picture: metres of a plane to pixels, y upwards.

    Args:
        size: width and height in pixels.
        centre: what is in the middle, metres.
        radius: from there to the edges, metres.
    """

    def __init__(self, size: int, centre: Sequence[float], radius: float):
        self.scale = size / (2 * radius)
        self.centre = np.asarray(centre, dtype=np.float64)[:2]
        self.radius = radius
        self.image = np.full((size, size, 3), 255, dtype=np.uint8)

    def pixels(self, xy: np.ndarray) -> np.ndarray:
        """(..., >= 2) metres to (..., 2) pixels."""
        offset = (np.asarray(xy)[..., :2] - self.centre) * self.scale
        middle = len(self.image) / 2 - .5
        return middle + offset * (1, -1)

    def shows(self, xy: np.ndarray, margin: float = 0.) -> np.ndarray:
        """Whether (..., >= 2) metres are in the picture."""
        offset = np.abs(np.asarray(xy)[..., :2] - self.centre)
        return (offset < self.radius + margin).all(-1)

    def lines(self,
              xy: Sequence[np.ndarray] | np.ndarray,
              colour: Colour,
              width: int = 1,
              closed: bool = False) -> None:
        lines(self.image, [self.pixels(line) for line in xy], colour, width,
              closed)

    def fill(self, rings: Sequence[np.ndarray], colour: Colour) -> None:
        fill(self.image, [self.pixels(ring) for ring in rings], colour)

    def dots(self, xy: np.ndarray, colour: Colour, radius: float) -> None:
        dots(self.image, self.pixels(xy), colour, radius)

    def arrow(self, begin: np.ndarray, end: np.ndarray, colour: Colour,
              width: int = 1) -> None:
        arrow(self.image, self.pixels(begin), self.pixels(end), colour, width)

    def rings(self, step: float, colour: Colour) -> None:
        """Circles around the origin with their distance."""
        middle = self.pixels(np.zeros(2))
        for distance in np.arange(step, self.radius * 1.5, step):
            angle = np.linspace(0, 2 * np.pi, 181)
            circle = distance * np.stack([np.cos(angle), np.sin(angle)], -1)
            self.lines([circle], colour)
            text(self.image, f'{distance:.0f} m',
                 middle + (4, -4 - distance * self.scale), .4, colour)
