"""The painted ground of a city as a texture seen from above.

Surfaces and markings are drawn around the ego vehicle in a pyramid of levels,
fine ones nearby and coarse ones far out. All positions are in the global
frame; colours are blue, green, red, 0 to 255.
"""

from dataclasses import dataclass

import numpy as np

from .city import City
from .markings import Colour, Marks, street_marks

# Metres a texel, and metres around the ego vehicle that the level covers.
LEVELS = ((.05, 36.), (.1, 50.), (.2, 68.), (.4, 96.), (.8, 140.))
# The texture is drawn anew when the ego vehicle enters another square of
# this grid, so it depends on the place alone.
SNAP = 48.
# Metres a pixel of the drawings that levels are averaged from.
_DRAWINGS = ((.025, LEVELS[:1]), (.05, LEVELS[1:3]), (.2, LEVELS[3:]))

EARTH = (92, 122, 112)
_WALKWAY = (158, 164, 168)
_ASPHALT = (92, 88, 86)
_GRAIN = 1024


@dataclass(frozen=True)
class Level:
    """One texture.

    Attributes:
        image: (H, W, 3) uint8; columns go east, rows north.
        texel: metres.
        origin: x, y of the outer corner of texel (0, 0), metres.
    """
    image: np.ndarray
    texel: float
    origin: tuple[float, float]

    def texture2ground(self) -> np.ndarray:
        """(3, 3): column, row (texel centres whole) to x, y, 1."""
        x, y = self.origin
        return np.array([[self.texel, 0., x + self.texel / 2],
                         [0., self.texel, y + self.texel / 2],
                         [0., 0., 1.]])


class GroundTexture:
    """Draws the ground of ``city`` around a place.

    Args:
        city: what is painted.
        rng: for the grain of the surfaces.

    Note:
        ``around`` depends on ``city``, the state of ``rng`` and the place
        alone, not on earlier calls. It keeps 20 MB and needs 100 MB while it
        draws.
    """

    def __init__(self, city: City, rng: np.random.Generator) -> None:
        self.city = city
        self._grain = _grain(rng)
        self._marks: dict[int, list[Marks]] = {}
        self._street_bounds = [
            _bounds([s.area, *s.walkways]) for s in city.streets
        ]
        self._junction_bounds = [
            _bounds([j.area, *j.corners]) for j in city.junctions
        ]
        self._square: tuple[int, int] | None = None
        self._levels: list[Level] = []

    def around(self, x: float, y: float) -> list[Level]:
        """Textures that reach as far as ``LEVELS`` says from a place."""
        square = round(x / SNAP), round(y / SNAP)
        if square != self._square:
            self._levels = self._draw(square[0] * SNAP, square[1] * SNAP)
            self._square = square
        return self._levels

    def _draw(self, x: float, y: float) -> list[Level]:
        import cv2
        levels = []
        for pixel, chosen in _DRAWINGS:
            half = _half(chosen[-1][1])
            canvas = self._canvas(x - half, y - half, pixel,
                                  round(2 * half / pixel))
            for texel, reach in chosen:
                inset = round((half - _half(reach)) / pixel)
                part = canvas[inset:len(canvas) - inset,
                              inset:len(canvas) - inset]
                count = round(2 * _half(reach) / texel)
                image = cv2.resize(
                    part, (count, count), interpolation=cv2.INTER_AREA)
                origin = x - _half(reach), y - _half(reach)
                self._add_grain(image, texel, origin)
                levels.append(Level(image, texel, origin))
        return levels

    def _canvas(self, x: float, y: float, pixel: float,
                count: int) -> np.ndarray:
        """(count, count, 3) drawing whose outer corner is at x, y."""
        import cv2
        canvas = np.empty((count, count, 3), dtype=np.uint8)
        cv2.rectangle(canvas, (0, 0), (count, count), EARTH, cv2.FILLED)

        def inside(bounds: np.ndarray) -> bool:
            return bool((bounds[1] > (x, y)).all() and
                        (bounds[0] < np.add((x, y), pixel * count)).all())

        def fill(outline: np.ndarray, colour: Colour) -> None:
            # A whole coordinate is a pixel's centre.
            at = (outline - (x, y)) / pixel - .5
            cv2.fillPoly(canvas, [np.rint(at * 16).astype(np.int32)], colour,
                         cv2.LINE_8, 4)

        streets = [
            street for street, bounds in zip(
                self.city.streets, self._street_bounds, strict=True)
            if inside(bounds)
        ]
        junctions = [
            junction for junction, bounds in zip(
                self.city.junctions, self._junction_bounds, strict=True)
            if inside(bounds)
        ]
        for owner in streets:
            for outline in owner.walkways:
                fill(outline, _WALKWAY)
        for owner in junctions:
            for outline in owner.corners:
                fill(outline, _WALKWAY)
        for owner in [*streets, *junctions]:
            fill(owner.area, _ASPHALT)
        for street in streets:
            for marks in self._street_marks(street.index):
                # The fill takes in pixels that an edge just touches.
                for outline in marks.outlines(street, .45 * pixel):
                    fill(outline, marks.colour)
        return canvas

    def _street_marks(self, index: int) -> list[Marks]:
        if index not in self._marks:
            self._marks[index] = street_marks(self.city.streets[index])
        return self._marks[index]

    def _add_grain(self, image: np.ndarray, texel: float,
                   origin: tuple[float, float]) -> None:
        """In place, at the same spots of the ground in all levels."""
        import cv2
        size = _GRAIN // round(texel / LEVELS[0][0])
        tile = cv2.resize(
            self._grain, (size, size), interpolation=cv2.INTER_AREA)
        columns, rows = ((round(v / texel) + np.arange(len(image))) % size
                         for v in origin)
        cv2.addWeighted(
            image, 1., cv2.merge([tile[rows[:, None], columns]] * 3), 1.,
            -128., image)


def _half(reach: float) -> float:
    return reach + SNAP / 2


def _bounds(outlines: list[np.ndarray]) -> np.ndarray:
    """(2, 2) lowest and highest x, y."""
    points = np.concatenate(outlines)
    return np.stack([points.min(0), points.max(0)])


def _grain(rng: np.random.Generator) -> np.ndarray:
    """(1024, 1024) uint8 around 128 that repeats without a seam."""
    import cv2
    total = np.full((_GRAIN, ) * 2, 128., dtype=np.float32)
    # Cells across the tile and strength: patches, blotches, single stones.
    for cells, strength in ((16, 5.), (128, 3.), (_GRAIN, 5.)):
        coarse = rng.normal(0., strength, (cells, cells)).astype(np.float32)
        step = _GRAIN // cells
        smooth = cv2.resize(
            np.pad(coarse, 2, mode='wrap'),
            None,
            fx=step,
            fy=step,
            interpolation=cv2.INTER_CUBIC)
        total += smooth[2 * step:-2 * step, 2 * step:-2 * step]
    return np.clip(total, 0., 255.).astype(np.uint8)
