"""Faces of boxes as sheets to paint on.

A box has five faces that can be seen: front, left, back, right and top. Each
is a sheet in metres, a to the right and b upwards as seen from outside (on
the top, a to the front and b to the left). Colours are red, green, blue on a
sheet, and blue, green, red in a finished ``Face``.
"""

from dataclasses import dataclass

import numpy as np

FACES = ('front', 'left', 'back', 'right', 'top')
Colour = tuple[float, float, float]


class Sheet:
    """One face under the brush.

    Args:
        width, height: metres.
        base: colour of the whole face.
        mirrored: paint from the right edge.
    """

    def __init__(self, width: float, height: float, base: Colour,
                 mirrored: bool = False) -> None:
        self.width, self.height, self.mirrored = width, height, mirrored
        self.polygons: list[np.ndarray] = []
        self.colours: list[Colour] = []
        self.rect(0., 1., 0., 1., base)

    def rect(self, a0: float, a1: float, b0: float, b1: float,
             colour: Colour) -> None:
        """Rectangle, as shares of width and height."""
        self.polygon([(a0, b0), (a1, b0), (a1, b1), (a0, b1)], colour)

    def disc(self, a: float, b: float, radius: float,
             colour: Colour) -> None:
        """Centre as shares, radius in metres."""
        angle = np.arange(12) * (np.pi / 6)
        self.polygon(
            np.stack([
                a + radius / self.width * np.cos(angle),
                b + radius / self.height * np.sin(angle)
            ], 1), colour)

    def polygon(self, corners: np.ndarray | list[tuple[float, float]],
                colour: Colour) -> None:
        """Convex polygon, corners as shares; what sticks out is cut off."""
        corners = np.clip(np.asarray(corners, dtype=np.float64), 0., 1.)
        if self.mirrored:
            corners[:, 0] = 1. - corners[:, 0]
        self.polygons.append(corners * (self.width, self.height))
        self.colours.append(colour)


@dataclass(frozen=True)
class Face:
    """A painted face.

    Attributes:
        points: (Q, 3) a, b in metres and 1: the corners of all polygons, the
            whole face first.
        stops: C + 1 places where polygons begin and end in ``points``.
        colours: (C, 3) blue, green, red.
        extent: (C,) shorter side of each polygon in metres.
    """
    points: np.ndarray
    stops: list[int]
    colours: np.ndarray
    extent: np.ndarray

    @classmethod
    def of(cls, sheet: Sheet) -> 'Face':
        flat = np.concatenate(sheet.polygons)
        return cls(
            np.column_stack([flat, np.ones(len(flat))]),
            np.cumsum([0, *map(len, sheet.polygons)]).tolist(),
            np.array(sheet.colours)[:, ::-1],
            np.array([np.ptp(p, axis=0).min() for p in sheet.polygons]))


Look = tuple[Face, ...]
"""The faces of one box, in the order of ``FACES``."""
