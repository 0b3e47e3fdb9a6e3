"""The city: streets, junctions, lanes and what is painted on them.

A grid of streets with gaps, turned against the axes. Traffic keeps to the
right. A street's cross section, from its centre line outwards on each side:
lanes, a cycle lane, a parking strip, the kerb, a walkway. All positions are
in the global frame: x east, y north, metres.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .paths import ArcPath, Pose, connect, ribbon

LANE_WIDTH = 3.5
CYCLE_WIDTH = 1.8
PARKING_WIDTH = 2.8
WALKWAY_WIDTH = 4.
# Metres from a street's end, where the junction begins.
CROSSING = (1., 4.)
STOP_LINE = (5.2, 5.6)
# Kerb radius at a corner.
CORNER = 5.
COLUMNS, ROWS = 6, 5
CENTRE = (450., 420.)


@dataclass(frozen=True)
class Lane:
    """A lane of a street, or a connector through a junction.

    Attributes:
        index: place in ``City.lanes``.
        path: centre line in driving direction.
        street: index of its street, -1 for a connector.
        junction: that a connector crosses; that a street's lane leads to.
        turn: ``'straight'``, ``'left'`` or ``'right'``.
        left, right: neighbours with the same direction, -1 for none.
        entries, exits: lanes before and after it.
    """
    index: int
    path: ArcPath
    street: int
    junction: int
    turn: str = 'straight'
    left: int = -1
    right: int = -1
    entries: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)

    @property
    def is_connector(self) -> bool:
        return self.street < 0

    @cached_property
    def area(self) -> np.ndarray:
        """(P, 2) outline."""
        return ribbon(self.path, LANE_WIDTH / 2, -LANE_WIDTH / 2)


@dataclass(frozen=True)
class Street:
    """A street between two junctions.

    Attributes:
        index: place in ``City.streets``.
        centre: centre line from junction ``nodes[0]`` to ``nodes[1]``.
        lanes_each_way: 1 or 2.
        forward, backward: lanes along and against ``centre``, innermost
            first.
    """
    index: int
    centre: ArcPath
    nodes: tuple[int, int]
    lanes_each_way: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]

    @property
    def half_width(self) -> float:
        """Centre line to kerb."""
        return half_width(self.lanes_each_way)

    @cached_property
    def area(self) -> np.ndarray:
        """(P, 2) outline, kerb to kerb."""
        return ribbon(self.centre, self.half_width, -self.half_width)

    @cached_property
    def walkways(self) -> list[np.ndarray]:
        """(P, 2) outlines on the left and on the right."""
        near, far = self.half_width, self.half_width + WALKWAY_WIDTH
        return [
            ribbon(self.centre, far, near),
            ribbon(self.centre, -near, -far)
        ]

    @cached_property
    def parking(self) -> list[np.ndarray]:
        """(P, 2) outlines on the left and on the right, clear of crossings.
        """
        low = STOP_LINE[1] + 2.
        part = self.centre.cut(low, self.centre.length - low)
        kerb = self.half_width
        return [
            ribbon(part, kerb, kerb - PARKING_WIDTH),
            ribbon(part, PARKING_WIDTH - kerb, -kerb)
        ]

    @cached_property
    def divider(self) -> ArcPath:
        """Between the directions, up to the stop lines."""
        return self.centre.cut(STOP_LINE[1],
                               self.centre.length - STOP_LINE[1])

    @cached_property
    def lane_dividers(self) -> list[ArcPath]:
        """Between lanes of one direction."""
        return [
            self.divider.offset(side * LANE_WIDTH * i)
            for i in range(1, self.lanes_each_way) for side in (1., -1.)
        ]

    @cached_property
    def cycle_lines(self) -> list[ArcPath]:
        """Inner edges of the cycle lanes, left and right."""
        inner = LANE_WIDTH * self.lanes_each_way
        return [self.divider.offset(inner), self.divider.offset(-inner)]

    @cached_property
    def crossings(self) -> list[np.ndarray]:
        """(4, 2) outlines at the start and at the end."""
        return [self._across(low, high, self.half_width, -self.half_width)
                for low, high in self._both_ends(*CROSSING)]

    @cached_property
    def stop_lines(self) -> list[np.ndarray]:
        """(4, 2) outlines at the start (for ``backward``) and at the end."""
        wide = LANE_WIDTH * self.lanes_each_way + CYCLE_WIDTH
        (a, b), (c, d) = self._both_ends(*STOP_LINE)
        return [self._across(a, b, wide, 0.), self._across(c, d, 0., -wide)]

    def _both_ends(self, low: float, high: float) -> list[tuple]:
        length = self.centre.length
        return [(low, high), (length - high, length - low)]

    def _across(self, low: float, high: float, left: float,
                right: float) -> np.ndarray:
        return ribbon(self.centre.cut(low, high), left, right)


@dataclass(frozen=True)
class Arm:
    """A street's end at a junction.

    Attributes:
        street: index.
        at_start: the junction lies at the start of the street.
        heading: away from the junction, radians.
        incoming, outgoing: lanes towards and away from the junction.
    """
    street: int
    at_start: bool
    heading: float
    incoming: tuple[int, ...]
    outgoing: tuple[int, ...]


@dataclass(frozen=True)
class Junction:
    """Where streets meet.

    Attributes:
        index: place in ``City.junctions``.
        centre: x, y.
        arms: counter-clockwise.
        area: (P, 2) outline of the carriageway.
        corners: (P, 2) outlines of walkways between arms, one after each arm.
        connectors: lanes through it.
    """
    index: int
    centre: tuple[float, float]
    arms: tuple[Arm, ...]
    area: np.ndarray
    corners: list[np.ndarray]
    connectors: tuple[int, ...]


@dataclass(frozen=True)
class City:
    """Everything that does not move, but for buildings and trees.

    Attributes:
        streets, junctions, lanes: by index.
    """
    streets: list[Street]
    junctions: list[Junction]
    lanes: list[Lane]

    @classmethod
    def generate(cls, rng: np.random.Generator) -> 'City':
        """A random city; same state of ``rng``, same city."""
        return _Builder(rng).build()


def half_width(lanes_each_way: int) -> float:
    """Centre line to kerb in metres."""
    return lanes_each_way * LANE_WIDTH + CYCLE_WIDTH + PARKING_WIDTH


class _Builder:
    """Lays out the grid, then streets, then junctions."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.angle = rng.uniform(.1, 1.4)
        # Lanes each way of the streets in a row (eastwards) and a column.
        # The rim has one, so that all lanes go round the city's corners.
        self.row_lanes = [1, *rng.permutation([2, 1, 2]), 1]
        self.column_lanes = [1, *rng.permutation([2, 1, 1, 2]), 1]
        u = np.cumsum(rng.uniform(88., 112., COLUMNS))
        v = np.cumsum(rng.uniform(88., 112., ROWS))
        self.u, self.v = u - u.mean(), v - v.mean()
        self.streets: list[Street] = []
        self.lanes: list[Lane] = []

    def build(self) -> City:
        # Node -> direction (0 east, 1 north, 2 west, 3 south) -> street.
        ends: dict[int, dict[int, int]] = {
            n: {} for n in range(COLUMNS * ROWS)
        }
        for a, b, direction in self._edges():
            ends[a][direction] = ends[b][direction + 2] = len(self.streets)
            self._add_street(a, b, direction)
        junctions = [self._junction(n, arms) for n, arms in ends.items()]
        return City(self.streets, junctions, self.lanes)

    def _edges(self) -> list[tuple[int, int, int]]:
        """Node, node, direction; some are left out, but no dead ends."""
        edges = []
        for n in range(COLUMNS * ROWS):
            column, row = n % COLUMNS, n // COLUMNS
            if column + 1 < COLUMNS:
                edges.append((n, n + 1, 0))
            if row + 1 < ROWS:
                edges.append((n, n + COLUMNS, 1))
        degree = np.bincount([n for e in edges for n in e[:2]])
        keep = []
        for i in self.rng.permutation(len(edges)):
            a, b, _ = edges[i]
            # Corners of the grid keep two; elsewhere three stay, so no two
            # parts of the city fall apart.
            if min(degree[a], degree[b]) > 3 and self.rng.random() < .35:
                degree[[a, b]] -= 1
            else:
                keep.append(i)
        return [edges[i] for i in sorted(keep)]

    def _lanes_of(self, node: int, direction: int) -> int:
        if direction % 2 == 0:
            return int(self.row_lanes[node // COLUMNS])
        return int(self.column_lanes[node % COLUMNS])

    def _centre(self, node: int) -> np.ndarray:
        u, v = self.u[node % COLUMNS], self.v[node // COLUMNS]
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return np.array([cos * u - sin * v, sin * u + cos * v]) + CENTRE

    def _radius(self, node: int) -> float:
        """Junction centre to where its streets begin."""
        return CORNER + max(
            half_width(self._lanes_of(node, direction))
            for direction in (0, 1))

    def _add_street(self, a: int, b: int, direction: int) -> None:
        heading = self.angle + direction * np.pi / 2
        length = float(np.linalg.norm(self._centre(b) - self._centre(a)))
        length -= self._radius(a) + self._radius(b)
        x, y = self._centre(a) + self._radius(a) * np.array(
            [np.cos(heading), np.sin(heading)])
        centre = ArcPath((float(x), float(y), heading), self._bend(length))
        each_way = self._lanes_of(a, direction)
        forward = self._street_lanes(centre, each_way, b)
        backward = self._street_lanes(centre.reversed(), each_way, a)
        self.streets.append(
            Street(
                len(self.streets), centre, (a, b), each_way, forward,
                backward))

    def _bend(self, length: float) -> tuple[tuple[float, float], ...]:
        """Straight, or a swerve to one side and back."""
        if self.rng.random() < .4:
            return ((length, 0.), )
        straight = 12.
        radius = self.rng.uniform(60., 110.)
        angle = np.arcsin((length - 2 * straight) / 4 / radius)
        side = float(self.rng.choice([-1., 1.])) / radius
        arc = float(radius * angle)
        return ((straight, 0.), (arc, side), (2 * arc, -side), (arc, side),
                (straight, 0.))

    def _street_lanes(self, centre: ArcPath, count: int,
                      junction: int) -> tuple[int, ...]:
        first = len(self.lanes)
        for i in range(count):
            self.lanes.append(
                Lane(
                    first + i,
                    centre.offset(-LANE_WIDTH * (i + .5)),
                    len(self.streets),
                    junction,
                    left=first + i - 1 if i else -1,
                    right=first + i + 1 if i + 1 < count else -1))
        return tuple(range(first, first + count))

    def _junction(self, node: int, ends: dict[int, int]) -> Junction:
        arms = []
        for direction in sorted(ends):
            street = self.streets[ends[direction]]
            at_start = street.nodes[0] == node
            lanes = (street.backward, street.forward)
            arms.append(
                Arm(street.index, at_start,
                    self.angle + direction * np.pi / 2,
                    lanes[not at_start], lanes[at_start]))
        kerbs, corners = [], []
        for arm, following in zip(arms, arms[1:] + arms[:1], strict=True):
            inner, outer = (self._corner(arm, following, extra).polyline()
                            for extra in (0., WALKWAY_WIDTH))
            kerbs.append(inner)
            corners.append(np.concatenate([inner, outer[::-1]]))
        first = len(self.lanes)
        self._connect(node, arms)
        x, y = self._centre(node).tolist()
        return Junction(node, (x, y), tuple(arms), np.concatenate(kerbs),
                        corners, tuple(range(first, len(self.lanes))))

    def _corner(self, arm: Arm, following: Arm, extra: float) -> ArcPath:
        """From the arm's left kerb (outwards) to the next arm's right one."""
        x, y, heading = self._end(arm, extra)
        start = (x, y, heading + np.pi)
        return connect(start, self._end(following, extra, side=-1.))

    def _end(self, arm: Arm, extra: float, side: float = 1.) -> Pose:
        """Pose on a kerb, or beside it, at the street's end, outwards."""
        street = self.streets[arm.street]
        path = street.centre if arm.at_start else street.centre.reversed()
        return path.offset(side * (street.half_width + extra)).start

    def _connect(self, node: int, arms: list[Arm]) -> None:
        """Connectors: inner lanes turn left, outer ones right."""
        for arm in arms:
            for other in arms:
                if other is arm:
                    continue
                turn = np.sin(other.heading - arm.heading)
                kind = ('straight' if abs(turn) < .5 else
                        'left' if turn < 0 else 'right')
                pairs = list(zip(arm.incoming, other.outgoing, strict=False))
                if len(arms) > 2 and kind == 'left':
                    pairs = pairs[:1]
                elif len(arms) > 2 and kind == 'right':
                    pairs = [(arm.incoming[-1], other.outgoing[-1])]
                for source, target in pairs:
                    self._add_connector(node, source, target, kind)

    def _add_connector(self, node: int, source: int, target: int,
                       kind: str) -> None:
        path = connect(self.lanes[source].path.end,
                       self.lanes[target].path.start)
        lane = Lane(
            len(self.lanes),
            path,
            -1,
            node,
            turn=kind,
            entries=[source],
            exits=[target])
        self.lanes.append(lane)
        self.lanes[source].exits.append(lane.index)
        self.lanes[target].entries.append(lane.index)
