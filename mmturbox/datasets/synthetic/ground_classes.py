"""What the ground is made of, as a raster, and nuScenes' map mask."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..files import complete_file
from .city import City

# Classes of SurroundOcc and of nuScenes-lidarseg's 16-class benchmark.
DRIVEABLE, SIDEWALK, TERRAIN = 11, 13, 14
# Metres a pixel, as the devkit's map masks have it.
RESOLUTION = .1
# Metres around the city that map masks show.
_MARGIN = 30.
# Fractional bits of the corners given to OpenCV.
_SHIFT = 6


@dataclass(frozen=True)
class Ground:
    """Class of the ground, terrain where the city has nothing.

    Attributes:
        classes: (H, W) uint8, rows northwards, columns eastwards.
        origin: (2,) x, y of the first pixel's lower left corner, global
            frame, metres.
    """
    classes: np.ndarray
    origin: np.ndarray

    @classmethod
    def of(cls, city: City) -> 'Ground':
        """Draw streets, junctions and walkways."""
        import cv2
        sidewalk = [
            outline for street in city.streets for outline in street.walkways
        ] + [outline for j in city.junctions for outline in j.corners]
        driveable = [s.area for s in city.streets
                     ] + [j.area for j in city.junctions]
        points = np.concatenate(sidewalk + driveable)
        low = np.floor(points.min(0) - 1.)
        width, height = np.ceil(
            (points.max(0) + 1. - low) / RESOLUTION).astype(int).tolist()
        classes = np.full((height, width), TERRAIN, dtype=np.uint8)
        for outlines, value in ((sidewalk, SIDEWALK), (driveable, DRIVEABLE)):
            for outline in outlines:
                # Integers are pixel centres there.
                corners = ((outline - low) / RESOLUTION - .5) * 2**_SHIFT
                cv2.fillPoly(
                    classes, [corners.round().astype(np.int32)],
                    value,
                    shift=_SHIFT)
        return cls(classes, low)

    def at(self, xy: np.ndarray) -> np.ndarray:
        """(...,) uint8 classes at (..., 2) global positions in metres."""
        column, row = np.moveaxis(
            np.floor((xy - self.origin) / RESOLUTION).astype(int), -1, 0)
        height, width = self.classes.shape
        inside = (0 <= row) & (row < height) & (0 <= column) & (column < width)
        found = np.full(inside.shape, TERRAIN, dtype=np.uint8)
        found[inside] = self.classes[row[inside], column[inside]]
        return found


def write_map_mask(path: Path, ground: Ground) -> None:
    """The mask that nuScenes' table ``map`` names: roads and sidewalks.

    255 where there is one of them, 0 elsewhere, ten pixels a metre, north up;
    its lower left corner is the global origin. Unlike the official masks it
    ends a little beyond the city, as readers hold all of it in memory.
    """
    import cv2
    column, row = np.round(ground.origin / RESOLUTION).astype(int).tolist()
    height, width = ground.classes.shape
    margin = round(_MARGIN / RESOLUTION)
    mask = np.zeros((margin + height + row, column + width + margin),
                    dtype=np.uint8)
    mask[margin:margin + height, column:column + width] = np.where(
        ground.classes[::-1] == TERRAIN, 0, 255)
    _, encoded = cv2.imencode('.png', mask, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    with complete_file(path) as file:
        file.write(encoded)
