"""Boxes of the actors that annotators would have seen, linked to tracks."""

from collections.abc import Callable

import numpy as np

from .cameras import camera_rig
from .geometry import count_inside, transform, yaw_quaternion
from .kinds import MOVES, STANDS, WAITS
from .owners import visible_shares
from .tables import (
    Tables,
    attribute_tokens,
    category_token,
    link,
    visibility_token,
)
from .world import World

# Farther actors get no annotation; metres from the ego vehicle.
ANNOTATION_RANGE = 65.
# What is visible is judged on images of this size, made or not.
_JUDGED_SIZE = (400, 225)
# Slower actors stand, m/s.
_MOVING = .2


class Annotator:
    """Collects the boxes of a scene's key frames.

    An actor is annotated from the first to the last key frame at which it is
    in range and seen: by a LiDAR return or in a camera.

    Args:
        world: of the scene.
        token: of a table and a key.
    """

    def __init__(self, world: World, token: Callable[..., str]) -> None:
        self.world, self.token = world, token
        self._cameras = camera_rig(_JUDGED_SIZE)
        # Actor -> its rows, and whether it is seen in each.
        self._tracks: dict[int, list[tuple[dict, bool]]] = {}

    def add(self, sample: int, boxes: np.ndarray, speed: np.ndarray,
            points: np.ndarray, ego2global: np.ndarray,
            lidar2global: np.ndarray) -> None:
        """A key frame.

        Args:
            boxes: (N + M, 7) actors and structures, global frame.
            speed: (N,) m/s.
            points: (P, >= 3) of the scan, sensor frame.
            ego2global, lidar2global: (4, 4).
        """
        actors = boxes[:len(speed)]
        distance = np.linalg.norm(actors[:, :2] - ego2global[:2, 3], axis=1)
        chosen = np.nonzero(distance < ANNOTATION_RANGE)[0]
        inside = count_inside(
            transform(lidar2global, points[:, :3].astype(np.float64)),
            actors[chosen])
        # What is farther than all actors in question hides none of them.
        near = np.linalg.norm(boxes[:, :2] - ego2global[:2, 3], axis=1) < (
            ANNOTATION_RANGE + boxes[:, 3:5].max(1))
        share = np.zeros(len(boxes))
        share[near] = visible_shares(self._cameras, ego2global, boxes[near])
        share = share[chosen]
        for i, count, visible in zip(
                chosen.tolist(), inside.tolist(), share.tolist(),
                strict=True):
            state = (MOVES if abs(speed[i]) > _MOVING else
                     WAITS if self.world.goes[i] else STANDS)
            row = self._row(sample, i, actors[i], state, visible, count)
            self._tracks.setdefault(i, []).append(
                (row, count > 0 or visible > 0))

    def _row(self, sample: int, actor: int, box: np.ndarray, state: int,
             visible: float, count: int) -> dict:
        x, y, z, length, width, height, yaw = box.tolist()
        return dict(
            token=self.token('sample_annotation', sample, actor),
            sample_token=self.token('sample', sample),
            instance_token=self.token('instance', actor),
            visibility_token=visibility_token(visible),
            attribute_tokens=attribute_tokens(
                int(self.world.kind[actor]), state),
            translation=[x, y, z],
            size=[width, length, height],
            rotation=yaw_quaternion(yaw),
            num_lidar_pts=count,
            num_radar_pts=0)

    def annotated(self, sample: int) -> np.ndarray:
        """(K,) actors with a box at a key frame, when all were added."""
        token = self.token('sample', sample)
        return np.array([
            actor for actor, track in self._tracks.items()
            if any(row['sample_token'] == token for row in _kept(track))
        ], dtype=int)

    def finish(self, tables: Tables) -> None:
        """Add the annotations, by key frame, and the instances."""
        rows = []
        for actor in sorted(self._tracks):
            kept = _kept(self._tracks[actor])
            if not kept:
                continue
            link(kept)
            rows += kept
            tables['instance'].append(
                dict(
                    token=self.token('instance', actor),
                    category_token=category_token(
                        int(self.world.kind[actor])),
                    nbr_annotations=len(kept),
                    first_annotation_token=kept[0]['token'],
                    last_annotation_token=kept[-1]['token']))
        order = {row['token']: i for i, row in enumerate(tables['sample'])}
        tables['sample_annotation'] += sorted(
            rows, key=lambda row: order[row['sample_token']])


def _kept(track: list[tuple[dict, bool]]) -> list[dict]:
    """From the first row in which the actor is seen to the last."""
    seen = [i for i, (_, is_seen) in enumerate(track) if is_seen]
    return [row for row, _ in track[seen[0]:seen[-1] + 1]] if seen else []
