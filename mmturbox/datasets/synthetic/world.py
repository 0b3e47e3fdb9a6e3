"""The world of one scene: a road, actors along it, the ego vehicle.

Everything follows one winding centre line, given by its heading over arc
length. An actor keeps its lateral offset and its speed along the line, and
all actors of a lane share one speed, so nothing ever collides and the density
around the ego vehicle is the same in every frame. All positions are in the
global frame: x east, y north, z up, metres, ground at z = 0.
"""

from dataclasses import dataclass, field

import numpy as np

from .kinds import KIND_INDEX, KINDS

# Actors exist up to this far from the ego vehicle, in metres along the line.
HORIZON = 80.


@dataclass(frozen=True)
class Lane:
    """A row of actors with one speed.

    Attributes:
        offset: metres left of the ego lane.
        speed: m/s along the line; a multiple of the ego speed if ``relative``.
        spacing: mean distance between actors in metres.
        kinds: names that take turns.
        gap: metres around the ego vehicle's start that stay empty.
    """
    offset: float
    speed: float
    spacing: float
    kinds: tuple[str, ...]
    relative: bool = False
    gap: float = 0.


# Tall vehicles keep to the outer lanes: the LiDAR sees over everything else.
# Spacings give 50 +- 3 boxes with points within 51.2 m of the ego vehicle.
LANES = (
    Lane(0., 1., 28., ('car', ), relative=True, gap=11.),
    Lane(-3.6, .8, 24., ('car', 'motorcycle'), relative=True),
    Lane(3.8, -1., 24., ('car', ), relative=True),
    Lane(-6.2, 3.5, 20., ('bicycle', 'motorcycle')),
    Lane(7.0, 0., 9., ('barrier', 'traffic_cone')),
    Lane(-9., 1.3, 15., ('pedestrian', )),
    Lane(9.5, -1.1, 15., ('pedestrian', )),
    Lane(10.8, 0., 40., ('pedestrian', 'bicycle')),
    Lane(-13., .7, 24., ('bus', 'car', 'truck'), relative=True),
    Lane(14., 0., 20., ('truck', 'construction_vehicle', 'car', 'trailer')),
    Lane(-17.5, 0., 20., ('trailer', 'car', 'construction_vehicle', 'bus')),
)


class Route:
    """A winding centre line, positions by arc length.

    The tightest radius is about 60 m, wider than the built-up corridor.
    """

    def __init__(self, rng: np.random.Generator, start: float,
                 stop: float) -> None:
        amplitude = rng.uniform(.6, .9)
        wavelength = rng.uniform(340., 420.)
        phase = rng.uniform(-.6, .6) + (np.pi if rng.random() < .5 else 0.)
        base = rng.uniform(-np.pi, np.pi)
        self._s = np.arange(start, stop + 1., .25)
        self._heading = base + amplitude * np.sin(
            self._s * (2 * np.pi / wavelength) + phase)
        step = np.stack([np.cos(self._heading),
                         np.sin(self._heading)], 1) * .25
        self._xy = np.cumsum(step, 0)
        # Keeps every coordinate inside the official map's extent.
        self._xy += rng.uniform(700., 1100., 2) - self._at(0.)[0]

    def _at(self, s) -> tuple[np.ndarray, np.ndarray]:
        xy = [np.interp(s, self._s, self._xy[:, i]) for i in (0, 1)]
        return np.stack(xy, -1), np.interp(s, self._s, self._heading)

    def place(self, s: np.ndarray,
              offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions and headings.

        Args:
            s: (N,) arc length in metres.
            offset: (N,) metres to the left of the line.

        Returns:
            (N, 2) x, y in metres and (N,) heading in radians.
        """
        xy, heading = self._at(s)
        left = np.stack([-np.sin(heading), np.cos(heading)], -1)
        return xy + left * np.asarray(offset)[..., None], heading


@dataclass
class World:
    """One scene.

    Attributes:
        kind: (N,) int64 index into ``KINDS``.
        size: (N, 3) length, width, height in metres.
        start, offset, speed: (N,) arc length at time 0 in metres, metres left
            of the ego lane, m/s along the line.
        turn: (N,) radians between the line and the actor's heading.
        structures: (M, 7) boxes that are never annotated (buildings).
        ego_speed: m/s.
    """
    route: Route
    kind: np.ndarray
    size: np.ndarray
    start: np.ndarray
    offset: np.ndarray
    speed: np.ndarray
    turn: np.ndarray
    ego_speed: float
    structures: np.ndarray = field(default_factory=lambda: np.zeros((0, 7)))

    @classmethod
    def generate(cls, rng: np.random.Generator, duration: float) -> 'World':
        """A random world that is populated for ``duration`` seconds."""
        ego_speed = rng.uniform(6., 9.)
        rows = [_fill_lane(rng, lane, ego_speed, duration) for lane in LANES]
        columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
        kind, start, offset, speed = columns
        end = start + speed * duration
        route = Route(rng,
                      min(start.min(), end.min()) - 5.,
                      max(start.max(), end.max()) + 5.)
        size = np.array([k.size for k in KINDS])[kind]
        size = size * rng.uniform(.93, 1.07, size.shape)
        # A barrier's long side, its width, lies along the road.
        turn = np.where(speed < 0, np.pi, 0.)
        turn[kind == KIND_INDEX['barrier']] = np.pi / 2
        world = cls(route, kind, size, start, offset, speed, turn, ego_speed)
        world.structures = _buildings(rng, route, ego_speed * duration)
        return world

    def ego_pose(self, time: float) -> tuple[np.ndarray, float]:
        """Position (3,) in metres and heading in radians, global frame."""
        xy, heading = self.route.place(
            np.array([self.ego_speed * time]), np.zeros(1))
        return np.array([*xy[0], 0.]), float(heading[0])

    def actor_boxes(self, time: float) -> np.ndarray:
        """(N, 7) float64: centre x, y, z, length, width, height, yaw."""
        xy, heading = self.route.place(self.start + self.speed * time,
                                       self.offset)
        return np.column_stack(
            [xy, self.size[:, 2] / 2, self.size, heading + self.turn])


def _fill_lane(rng: np.random.Generator, lane: Lane, ego_speed: float,
               duration: float) -> tuple[np.ndarray, ...]:
    """kind, start, offset, speed of a lane's actors."""
    speed = lane.speed * (ego_speed if lane.relative else 1.)
    drift = (ego_speed - speed) * duration
    low, high = min(0., drift) - HORIZON, max(0., drift) + HORIZON
    count = int((high - low) / lane.spacing) + 1
    longest = max(KINDS[KIND_INDEX[name]].size[0] for name in lane.kinds)
    slack = max(0., lane.spacing - 1.1 * longest) * .4
    start = (low + lane.spacing * (np.arange(count) + rng.random()) +
             rng.uniform(-slack, slack, count))
    turns = rng.integers(len(lane.kinds))
    kind = np.array([
        KIND_INDEX[lane.kinds[(i + turns) % len(lane.kinds)]]
        for i in range(count)
    ])
    keep = np.abs(start) >= lane.gap
    kind, start = kind[keep], start[keep]
    return (kind, start, np.full(len(start), lane.offset),
            np.full(len(start), speed))


def _buildings(rng: np.random.Generator, route: Route,
               length: float) -> np.ndarray:
    """(M, 7) boxes on both sides of the road, with gaps."""
    s = np.arange(-HORIZON, length + HORIZON, 18.)
    boxes = []
    for side in (-1., 1.):
        keep = s[rng.random(len(s)) < .75]
        size = np.column_stack([
            rng.uniform(9., 15., len(keep)),
            rng.uniform(6., 9., len(keep)),
            rng.uniform(5., 14., len(keep))
        ])
        offset = side * rng.uniform(27., 33., len(keep))
        xy, heading = route.place(keep, offset)
        boxes.append(np.column_stack([xy, size[:, 2] / 2, size, heading]))
    return np.concatenate(boxes)
