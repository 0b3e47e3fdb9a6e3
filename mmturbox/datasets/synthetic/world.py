"""The world of one scene: where everything is at any time.

All positions are in the global frame: x east, y north, z up, metres, ground
at z = 0.
"""

from dataclasses import dataclass

import numpy as np

from .buildings import build_up
from .city import City
from .paths import ArcPath
from .population import EGO_AHEAD, EGO_SIZE, Population, populate
from .thinning import apart, thin_out
from .traffic import Tracks, simulate

# Counts up when the same seed would give another world, or other files of it.
WORLD_VERSION = 3
# Buildings farther from the ego vehicle's way are left out, metres.
SIGHT = 140.


@dataclass(frozen=True)
class Motion:
    """States at some times, of one body (T,) or of several (T, N).

    Attributes:
        xy: (..., 2) metres.
        heading: (...,) radians, continuous in time.
        speed: (...,) m/s along the heading.
        acceleration: (...,) m/s^2 along the heading.
        curvature: (...,) 1/m of the path; the yaw rate is speed * curvature.
    """
    xy: np.ndarray
    heading: np.ndarray
    speed: np.ndarray
    acceleration: np.ndarray
    curvature: np.ndarray


@dataclass(frozen=True)
class Surroundings:
    """What all scenes of a set share.

    Attributes:
        city: streets.
        boxes: (M, 7) buildings and trees: centre, length, width, height, yaw.
        kind: (M,) ``buildings.BUILDING`` or ``TREE``.
    """
    city: City
    boxes: np.ndarray
    kind: np.ndarray

    @classmethod
    def generate(cls, rng: np.random.Generator) -> 'Surroundings':
        city = City.generate(rng)
        return cls(city, *build_up(city, rng))


@dataclass(frozen=True)
class World:
    """One scene.

    Attributes:
        city: the streets.
        kind: (N,) int64 index into ``KINDS``.
        size: (N, 3) length, width, height in metres.
        structures: (M, 7) boxes that are never annotated.
        structure_kind: (M,) ``buildings.BUILDING`` or ``TREE``.
    """
    city: City
    kind: np.ndarray
    size: np.ndarray
    structures: np.ndarray
    structure_kind: np.ndarray
    _paths: list[ArcPath]
    _tracks: Tracks
    _standing: np.ndarray

    @classmethod
    def generate(cls, rng: np.random.Generator, surroundings: Surroundings,
                 duration: float) -> 'World':
        """A random scene that is populated for ``duration`` seconds."""
        city = surroundings.city
        crowd = populate(city, duration, rng)
        tracks = simulate([*crowd.movers, crowd.ego], crowd.lights, duration)
        world = cls._assemble(surroundings, crowd, tracks)
        world = world._only(apart(world, duration))
        return world._only(thin_out(world, duration, rng))

    @classmethod
    def _assemble(cls, surroundings: Surroundings, crowd: Population,
                  tracks: Tracks) -> 'World':
        way = crowd.ego.path.at(tracks.s[::5, -1])[0]
        near = np.linalg.norm(
            surroundings.boxes[:, None, :2] - way, axis=-1).min(1) < SIGHT
        kind = np.array([m.kind for m in crowd.movers])
        size = np.array([m.size for m in crowd.movers])
        return cls(
            surroundings.city, np.concatenate([kind, crowd.kind]),
            np.concatenate([size, crowd.size]), surroundings.boxes[near],
            surroundings.kind[near],
            [m.path for m in crowd.movers] + [crowd.ego.path], tracks,
            crowd.pose)

    def _only(self, keep: np.ndarray) -> 'World':
        """Without the actors that ``keep`` (N,) bool leaves out."""
        movers = len(self._paths) - 1
        moves = np.append(keep[:movers], True)
        tracks = Tracks(self._tracks.s[:, moves],
                        self._tracks.speed[:, moves],
                        self._tracks.acceleration[:, moves])
        paths = [p for p, k in zip(self._paths, moves, strict=True) if k]
        return World(self.city, self.kind[keep], self.size[keep],
                     self.structures, self.structure_kind, paths, tracks,
                     self._standing[keep[movers:]])

    @property
    def goes(self) -> np.ndarray:
        """(N,) bool: drives, rides or walks, if only after a while."""
        return np.arange(len(self.kind)) < len(self._paths) - 1

    def ego_motion(self, times: np.ndarray) -> Motion:
        """Of the rear axle, at (T,) seconds."""
        motion = self._moving(np.asarray(times, dtype=np.float64),
                              len(self._paths) - 1, len(self._paths))
        return Motion(*(value[:, 0] for value in vars(motion).values()))

    def actor_motion(self, times: np.ndarray) -> Motion:
        """Of the box centres, at (T,) seconds."""
        times = np.asarray(times, dtype=np.float64)
        motion = self._moving(times, 0, len(self._paths) - 1)
        still = (len(times), len(self._standing))
        zero = np.zeros(still)
        return Motion(
            np.concatenate([
                motion.xy,
                np.broadcast_to(self._standing[:, :2], (*still, 2))
            ], 1),
            np.concatenate([
                motion.heading,
                np.broadcast_to(self._standing[:, 2], still)
            ], 1), *(np.concatenate([value, zero], 1)
                     for value in (motion.speed, motion.acceleration,
                                   motion.curvature)))

    def _moving(self, times: np.ndarray, first: int, stop: int) -> Motion:
        s, speed, acceleration = self._tracks.at(times)
        columns = range(first, stop)
        placed = [self._paths[i].at(s[:, i]) for i in columns]
        curvature = [self._paths[i].curvature(s[:, i]) for i in columns]
        return Motion(
            np.stack([xy for xy, _ in placed], 1),
            np.stack([heading for _, heading in placed], 1),
            speed[:, first:stop], acceleration[:, first:stop],
            np.stack(curvature, 1))

    def ego_pose(self, time: float) -> tuple[np.ndarray, float]:
        """Position (3,) in metres and heading in radians."""
        motion = self.ego_motion(np.array([time]))
        return np.array([*motion.xy[0], 0.]), float(motion.heading[0])

    def ego_box(self, time: float) -> np.ndarray:
        """(7,) the ego vehicle's own box."""
        position, yaw = self.ego_pose(time)
        x, y = position[:2] + EGO_AHEAD * np.array([np.cos(yaw), np.sin(yaw)])
        return np.array([x, y, EGO_SIZE[2] / 2, *EGO_SIZE, yaw])

    def ego_route(self) -> np.ndarray:
        """(R, 2) the ego vehicle's way, from 50 m before to 50 m after."""
        s = self._tracks.s[:, -1]
        return self._paths[-1].at(np.arange(s[0] - 50., s[-1] + 50., .5))[0]

    def boxes(self, motion: Motion) -> np.ndarray:
        """(T, N, 7) float64: centre x, y, z, length, width, height, yaw.

        Args:
            motion: of the actors.
        """
        size = np.broadcast_to(self.size, (*motion.heading.shape, 3))
        return np.concatenate([
            motion.xy, size[..., 2:] / 2, size, motion.heading[..., None]
        ], -1)

    def actor_boxes(self, time: float) -> np.ndarray:
        """(N, 7) float64: centre x, y, z, length, width, height, yaw."""
        return self.boxes(self.actor_motion(np.array([time])))[0]
