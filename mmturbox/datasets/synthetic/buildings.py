"""Buildings and trees beside the streets: boxes that nobody annotates."""

import numpy as np

from .city import WALKWAY_WIDTH, City, Street

BUILDING, TREE = 0, 1
# From the walkway's outer edge.
_SETBACK = 1.


def build_up(city: City,
             rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Line all streets with buildings, and trees in the gaps.

    Returns:
        (M, 7) boxes: centre, length, width, height in metres, yaw; and (M,)
        kinds, ``BUILDING`` or ``TREE``. They overlap neither each other nor
        streets and walkways.
    """
    import shapely
    taken = shapely.STRtree([
        shapely.Polygon(outline) for street in city.streets
        for outline in (street.area, *street.walkways)
    ] + [
        shapely.Polygon(outline) for junction in city.junctions
        for outline in (junction.area, *junction.corners)
    ])
    boxes: list[np.ndarray] = []
    kinds: list[int] = []
    outlines: list[shapely.Polygon] = []
    for street in city.streets:
        for side in (1., -1.):
            for box, kind in _row(street, side, rng):
                outline = shapely.Polygon(box_corners(box[None])[0])
                if len(taken.query(outline, 'intersects')) or any(
                        outline.intersects(other) for other in outlines):
                    continue
                boxes.append(box)
                kinds.append(kind)
                outlines.append(outline)
    return np.array(boxes), np.array(kinds)


def box_corners(boxes: np.ndarray) -> np.ndarray:
    """(N, 4, 2) ground corners of (N, 7) boxes, counter-clockwise."""
    half = boxes[:, None, 3:5] / 2 * [[1, 1], [-1, 1], [-1, -1], [1, -1]]
    cos, sin = np.cos(boxes[:, 6:]), np.sin(boxes[:, 6:])
    x, y = half[..., 0], half[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y],
                    -1) + boxes[:, None, :2]


def _row(street: Street, side: float,
         rng: np.random.Generator) -> list[tuple[np.ndarray, int]]:
    """Candidates along one side, front to the street."""
    near = street.half_width + WALKWAY_WIDTH + _SETBACK
    found, s = [], -20.
    while s < street.centre.length + 20.:
        length, depth = rng.uniform(9., 17.), rng.uniform(8., 12.)
        gap = rng.uniform(1., 7.)
        found.append((_stand(street, side, s + length / 2, near + depth / 2,
                             (length, depth, rng.uniform(6., 17.))),
                      BUILDING))
        if gap > 3.:
            crown = rng.uniform(1., 1.8)
            found.append((_stand(street, side, s + length + gap / 2,
                                 near + crown / 2,
                                 (crown, crown, rng.uniform(3., 5.))), TREE))
        s += length + gap
    return found


def _stand(street: Street, side: float, s: float, out: float,
           size: tuple[float, ...]) -> np.ndarray:
    xy, heading = street.centre.at(s)
    left = np.array([-np.sin(heading), np.cos(heading)])
    return np.array([*(xy + side * out * left), size[2] / 2, *size, heading])
