"""Who leaves a scene again, so that bodies keep apart and crowds alike."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .buildings import box_corners
from .geometry import inverse_rigid, rigid, transform, yaw_quaternion
from .kinds import KIND_INDEX
from .lidar import Lidar, hits

if TYPE_CHECKING:
    from .world import World

RANGE = 51.2
# Boxes in range with LiDAR returns at a key frame, at most.
MOST = 53
_ROUNDS = 3
_COMMON = [
    KIND_INDEX[n] for n in ('car', 'pedestrian', 'traffic_cone')
]


def apart(world: 'World', duration: float) -> np.ndarray:
    """(N,) bool: all but those who would run into somebody or something.

    Drivers brake for what is ahead, which is not always enough: at the start,
    say, or where somebody steps out.
    """
    import shapely
    keep = np.ones(len(world.kind), dtype=bool)
    goes = world.goes
    times = np.arange(0., duration + 1e-6, .25)
    boxes = world.boxes(world.actor_motion(times))
    for time, actors in zip(times, boxes, strict=True):
        shapes = shapely.polygons(
            box_corners(
                np.concatenate([
                    actors, world.ego_box(time)[None], world.structures
                ])))
        one, other = shapely.STRtree(shapes).query(
            shapes[:len(keep)][goes], 'intersects')
        one = np.nonzero(goes)[0][one]
        for i, j in zip(one.tolist(), other.tolist(), strict=True):
            # Of two who go, the first leaves.
            if i != j and keep[i] and (j >= len(keep) or keep[j]):
                keep[i] = False
    return keep


def thin_out(world: 'World', duration: float,
             rng: np.random.Generator) -> np.ndarray:
    """(N,) bool: which actors stay.

    Those of the common classes leave, but for vehicles near the ego vehicle,
    which may be why it brakes.
    """
    times = np.arange(0., duration + 1e-6, .5)
    motion, ego = world.actor_motion(times), world.ego_motion(times)
    poses = np.column_stack([ego.xy, ego.heading])
    far = np.linalg.norm(motion.xy - ego.xy[:, None], axis=-1).min(0) > 20.
    brakes_for = (motion.speed > 0).any(0) & (world.kind == KIND_INDEX['car'])
    may_leave = np.isin(world.kind, _COMMON) & (far | ~brakes_for)
    keep = np.ones(len(world.kind), dtype=bool)
    # Who leaves uncovers others, so look again.
    for _ in range(_ROUNDS):
        seen = np.stack([
            _seen(world, keep, poses[i], motion.xy[i], motion.heading[i])
            for i in range(len(times))
        ])
        _remove(keep, may_leave, seen, rng.permutation(len(keep)))
    return keep


def _remove(keep: np.ndarray, may_leave: np.ndarray, seen: np.ndarray,
            order: np.ndarray) -> None:
    """Take actors out of ``keep`` until no frame sees too many.

    Args:
        seen: (T, N) who is seen in each frame.
        order: settles ties.
    """
    while True:
        over = seen[:, keep].sum(1) - MOST
        able = keep & may_leave & seen[over > 0].any(0)
        if not able.any():
            return
        # Rather those who stand where it is crowded and nowhere else.
        gain = seen[over > 0].sum(0) * 10 - seen[over < -8].sum(0)
        gain[~able] = -10**6
        keep[order[np.argmax(gain[order])]] = False


def _seen(world: 'World', keep: np.ndarray, ego: np.ndarray, xy: np.ndarray,
          heading: np.ndarray) -> np.ndarray:
    """(N,) whether an actor that stays is in range and hit by some ray.

    Args:
        ego: x, y, yaw; ``xy`` (N, 2) and ``heading`` (N,) of the actors.
    """
    lidar = replace(Lidar(), columns=Lidar.columns // 2)
    ego2global = rigid(yaw_quaternion(ego[2]), [*ego[:2], 0.])
    boxes = np.column_stack(
        [xy, world.size[:, 2] / 2, world.size, heading])
    local = transform(
        inverse_rigid(ego2global @ lidar.lidar2ego), boxes[:, :3])
    seen = keep & (np.abs(local[:, :2]).max(1) < RANGE)
    walls = world.structures[np.linalg.norm(
        world.structures[:, :2] - ego[:2], axis=1) < 1.5 * RANGE]
    met = hits(lidar, np.concatenate([boxes[seen], walls]), ego2global)
    seen[seen] = met[:seen.sum()] > 0
    return seen
