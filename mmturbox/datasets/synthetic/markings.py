"""What is painted on a street: lines, bars, strips of another surface.

Colours are blue, green, red, 0 to 255.
"""

from dataclasses import dataclass

import numpy as np

from .city import (
    CROSSING,
    CYCLE_WIDTH,
    LANE_WIDTH,
    PARKING_WIDTH,
    STOP_LINE,
    WALKWAY_WIDTH,
    Street,
)

Colour = tuple[int, int, int]

_JOINT = (136, 142, 146)
_KERB = (196, 200, 202)
_PARKING = (106, 101, 98)
_CYCLE = (92, 104, 84)
_WHITE = (226, 228, 228)
_YELLOW = (60, 178, 222)

# Metres: dashes and the gaps between them, parking bays, bars of crossings,
# distance of the joints between paving slabs.
_DASH, _DASH_GAP = 3., 6.
_BAY = 6.
_BAR = .5
_SLAB = 2.


@dataclass(frozen=True)
class Marks:
    """Strips of one colour along a street.

    Attributes:
        span: (K, 2) arc lengths on the centre line, metres.
        side: (K, 2) metres left of the centre line, right edge first.
        colour: of all.
    """
    span: np.ndarray
    side: np.ndarray
    colour: Colour

    def outlines(self, street: Street, shrink: float = 0.) -> np.ndarray:
        """(K, P, 2) outlines, drawn in by ``shrink`` metres all around."""
        drawn_in = np.array([shrink, -shrink])
        span, side = self.span + drawn_in, self.side + drawn_in
        longest = np.diff(span).max(initial=0.)
        # The tightest bend leaves a chord of two metres by a centimetre.
        steps = 2 + int(longest / 2.)
        s = span[:, :1] + np.diff(span) * np.linspace(0., 1., steps)
        xy, heading = street.centre.at(s)
        left = np.stack([-np.sin(heading), np.cos(heading)], -1)
        right_edge = xy + left * side[:, 0, None, None]
        left_edge = xy + left * side[:, 1, None, None]
        return np.concatenate([right_edge, left_edge[:, ::-1]], 1)


def street_marks(street: Street) -> list[Marks]:
    """All marks of a street, in drawing order."""
    length, kerb = street.centre.length, street.half_width
    inner = LANE_WIDTH * street.lanes_each_way
    low, high = STOP_LINE[1], length - STOP_LINE[1]
    parking = (low + 2., high - 2.)
    bay_lines = np.linspace(*parking,
                            1 + int((parking[1] - parking[0]) / _BAY))
    parking_side = _both([(kerb - PARKING_WIDTH, kerb)])
    dividers = [
        _line(LANE_WIDTH * i, .15) for i in range(1, street.lanes_each_way)
    ]
    crossings = [CROSSING, (length - CROSSING[1], length - CROSSING[0])]
    slabs = _pieces(0., length, .06, _SLAB - .06)
    return [
        _grid(slabs, _both([(kerb, kerb + WALKWAY_WIDTH)]), _JOINT),
        _grid([(0., length)], _both([(kerb, kerb + .2)]), _KERB),
        _grid([parking], parking_side, _PARKING),
        _grid([(low, high)], _both([(inner, inner + CYCLE_WIDTH)]), _CYCLE),
        _grid([_line(s, .12) for s in bay_lines], parking_side, _WHITE),
        _grid([(low, high)], _both([_line(inner, .12)]), _WHITE),
        _grid([(low, high)], _both([_line(.12, .1)]), _YELLOW),
        _grid(
            _pieces(low, high, _DASH, _DASH_GAP), _both(dividers), _WHITE),
        _grid(crossings, _pieces(-kerb + .3, kerb, _BAR, _BAR), _WHITE),
        # Traffic keeps to the right and stops at its end.
        Marks(
            np.array([STOP_LINE,
                      (length - STOP_LINE[1], length - STOP_LINE[0])]),
            np.array([(.3, inner + CYCLE_WIDTH),
                      (-inner - CYCLE_WIDTH, -.3)]), _WHITE),
    ]


def _grid(span: list[tuple[float, float]] | np.ndarray,
          side: np.ndarray, colour: Colour) -> Marks:
    """All pairs of (S, 2) spans and (T, 2) sides."""
    return Marks(
        np.repeat(span, len(side), 0), np.tile(side, (len(span), 1)), colour)


def _pieces(low: float, high: float, length: float,
            gap: float) -> np.ndarray:
    """(S, 2) spans of ``length`` with ``gap`` between them."""
    starts = np.arange(low, high - length, length + gap)
    return np.stack([starts, starts + length], 1)


def _both(side: list[tuple[float, float]]) -> np.ndarray:
    """Strips on the left and their mirror images on the right."""
    left = np.reshape(side, (-1, 2))
    return np.concatenate([left, -left[:, ::-1]])


def _line(offset: float, width: float) -> tuple[float, float]:
    return offset - width / 2, offset + width / 2
