"""Paths of straight lines and circular arcs.

Streets, lanes, kerbs and everybody's way are such paths, so that a parallel
path is one too, and lengths, headings and curvatures are exact.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Pose = tuple[float, float, float]
"""x, y in metres and heading in radians, global frame."""


def step_pose(pose: Pose, length: float, curvature: float) -> Pose:
    """The pose ``length`` metres on, along a line or an arc."""
    x, y, heading = pose
    turn = length * curvature
    # sin(a)/a keeps straight lines exact.
    chord = length * float(np.sinc(turn / 2 / np.pi))
    middle = heading + turn / 2
    return (x + chord * float(np.cos(middle)),
            y + chord * float(np.sin(middle)), heading + turn)


@dataclass(frozen=True)
class ArcPath:
    """A path with a constant curvature on each piece.

    Attributes:
        start: pose at arc length 0.
        pieces: length in metres (> 0) and curvature in 1/m, positive to the
            left, of each piece.
    """
    start: Pose
    pieces: tuple[tuple[float, float], ...]

    @cached_property
    def length(self) -> float:
        return float(sum(length for length, _ in self.pieces))

    @cached_property
    def poses(self) -> np.ndarray:
        """(K + 1, 3) poses at the start of each piece and at the end."""
        poses = [self.start]
        for length, curvature in self.pieces:
            poses.append(step_pose(poses[-1], length, curvature))
        return np.array(poses)

    @cached_property
    def breaks(self) -> np.ndarray:
        """(K + 1,) arc lengths of ``poses``."""
        return np.cumsum([0., *(length for length, _ in self.pieces)])

    @property
    def end(self) -> Pose:
        x, y, heading = self.poses[-1]
        return float(x), float(y), float(heading)

    def curvature(self, s: np.ndarray | float) -> np.ndarray:
        """Curvature at arc lengths ``s``, 1/m."""
        return np.array([c for _, c in self.pieces])[self._piece(s)]

    def _piece(self, s: np.ndarray | float) -> np.ndarray:
        index = np.searchsorted(self.breaks, s, side='right') - 1
        return np.clip(index, 0, len(self.pieces) - 1)

    def at(self, s: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Position and heading; the ends are extended straight or as arcs.

        Args:
            s: (...,) arc lengths in metres.

        Returns:
            (..., 2) positions in metres and (...,) headings in radians.
        """
        s = np.asarray(s, dtype=np.float64)
        piece = self._piece(s)
        along = s - self.breaks[piece]
        begin = self.poses[piece]
        turn = along * self.curvature(s)
        middle = begin[..., 2] + turn / 2
        chord = along * np.sinc(turn / 2 / np.pi)
        xy = begin[..., :2] + chord[..., None] * np.stack(
            [np.cos(middle), np.sin(middle)], -1)
        return xy, begin[..., 2] + turn

    def offset(self, left: float) -> 'ArcPath':
        """The parallel path ``left`` metres to the left.

        Raises:
            ValueError: if an arc is tighter than the offset.
        """
        x, y, heading = self.start
        start = (x - left * float(np.sin(heading)),
                 y + left * float(np.cos(heading)), heading)
        pieces = []
        for length, curvature in self.pieces:
            scale = 1. - left * curvature
            if scale <= 0.:
                raise ValueError(f'an arc of curvature {curvature} has no '
                                 f'parallel {left} m to the left')
            pieces.append((length * scale, curvature / scale))
        return ArcPath(start, tuple(pieces))

    def reversed(self) -> 'ArcPath':
        x, y, heading = self.end
        return ArcPath((x, y, heading + np.pi),
                       tuple((n, -c) for n, c in reversed(self.pieces)))

    def cut(self, begin: float, end: float) -> 'ArcPath':
        """The part between two arc lengths within the path."""
        pieces = []
        for (_, curvature), low, high in zip(
                self.pieces, self.breaks[:-1], self.breaks[1:], strict=True):
            length = min(high, end) - max(low, begin)
            if length > 1e-9:
                pieces.append((float(length), curvature))
        xy, heading = self.at(begin)
        return ArcPath((float(xy[0]), float(xy[1]), float(heading)),
                       tuple(pieces))

    def __add__(self, other: 'ArcPath') -> 'ArcPath':
        """This path and then ``other``, which starts where this one ends."""
        return ArcPath(self.start, self.pieces + other.pieces)

    def polyline(self, sagitta: float = .01, step: float = 50.) -> np.ndarray:
        """(P, 2) points on the path, both ends and all breaks among them.

        Args:
            sagitta: metres by which an arc may leave its chord.
            step: longest chord in metres.
        """
        stops = [np.zeros(1)]
        for (length, curvature), low in zip(
                self.pieces, self.breaks, strict=False):
            chord = step
            if curvature:
                chord = min(step, np.sqrt(8 * sagitta / abs(curvature)))
            count = int(np.ceil(length / chord - 1e-9))
            stops.append(low + length * np.arange(1, count + 1) / count)
        return self.at(np.concatenate(stops))[0]


def connect(start: Pose, end: Pose) -> ArcPath:
    """Straight, one arc, straight: the roundest such way between two poses.

    Raises:
        ValueError: if the lines through the poses do not cross between them.
    """
    turn = (end[2] - start[2] + np.pi) % (2 * np.pi) - np.pi
    gap = np.array([end[0] - start[0], end[1] - start[1]])
    ahead = np.array([np.cos(start[2]), np.sin(start[2])])
    if abs(np.sin(turn)) < 1e-9:
        return ArcPath(start, ((float(gap @ ahead), 0.), ))
    away = np.array([np.cos(end[2]), np.sin(end[2])])
    before, after = np.linalg.solve(np.stack([ahead, away], 1), gap)
    if before < 0 or after < 0:
        raise ValueError(f'no single arc leads from {start} to {end}')
    tangent = min(before, after)
    radius = tangent / np.tan(abs(turn) / 2)
    pieces = ((float(before - tangent), 0.),
              (float(radius * abs(turn)), float(np.sign(turn) / radius)),
              (float(after - tangent), 0.))
    return ArcPath(start, tuple(p for p in pieces if p[0] > 1e-9))


def ribbon(path: ArcPath, left: float, right: float) -> np.ndarray:
    """(P, 2) outline between two parallels, counter-clockwise.

    Args:
        left, right: metres to the left of ``path``, left > right.
    """
    return np.concatenate([
        path.offset(right).polyline(),
        path.offset(left).polyline()[::-1]
    ])
