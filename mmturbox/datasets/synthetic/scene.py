"""One scene: its point files and its records.

Time is in frames of the LiDAR, 20 a second; each tenth is a key frame (a
``sample``), and the nine before it are its sweeps. As in nuScenes, the first
key frame of a scene has no sweeps, and every frame has its own ego pose.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .geometry import count_inside, rigid, transform, yaw_quaternion
from .kinds import KINDS
from .lidar import Lidar, Scan, scan
from .tables import (
    LOCATION,
    Tables,
    attribute_tokens,
    category_token,
    empty_tables,
    link,
    token,
    visibility_token,
)
from .world import World

FRAME_US = 50_000
FRAMES_PER_SAMPLE = 10
# Farther actors get no annotation; metres from the ego vehicle.
ANNOTATION_RANGE = 65.
BUILDING_REFLECTIVITY = 18.
_EPOCH_US = 1_532_400_000_000_000


@dataclass(frozen=True)
class SceneSpec:
    """What a scene depends on.

    Attributes:
        name: official scene name.
        index: place among the scenes, seeds it together with ``seed``.
        num_samples: key frames.
        seed: of the whole set.
    """
    name: str
    index: int
    num_samples: int
    seed: int

    @property
    def num_frames(self) -> int:
        return (self.num_samples - 1) * FRAMES_PER_SAMPLE + 1

    def token(self, table: str, *key) -> str:
        return token(self.seed, self.name, table, *key)

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.index, *key))

    def timestamp(self, frame: int) -> int:
        """Microseconds."""
        return _EPOCH_US + self.index * 10**9 + frame * FRAME_US


def generate_scene(root: Path,
                   spec: SceneSpec,
                   lidar: Lidar | None = None,
                   on_frame: Callable[[], None] = lambda: None) -> Tables:
    """Write the scene's point files and give back its records.

    Args:
        root: data root that takes ``samples/`` and ``sweeps/``.
        lidar: sensor, nuScenes-like by default.
        on_frame: called after each LiDAR frame.
    """
    lidar = lidar or Lidar()
    last_time = (spec.num_frames - 1) * FRAME_US / 1e6
    world = World.generate(spec.rng(0), last_time)
    tables = _scene_tables(spec, lidar)
    logfile = tables['log'][0]['logfile']
    for kind in ('samples', 'sweeps'):
        (root / kind / lidar.channel).mkdir(parents=True, exist_ok=True)
    for frame in range(spec.num_frames):
        time = frame * FRAME_US / 1e6
        position, yaw = world.ego_pose(time)
        ego2global = rigid(yaw_quaternion(yaw), position)
        actors = world.actor_boxes(time)
        boxes = np.concatenate([actors, world.structures])
        result = scan(lidar, boxes, _reflectivity(world), ego2global,
                      spec.rng(1, frame))
        is_key = frame % FRAMES_PER_SAMPLE == 0
        folder = 'samples' if is_key else 'sweeps'
        name = (f'{folder}/{lidar.channel}/{logfile}__{lidar.channel}__'
                f'{spec.timestamp(frame)}.pcd.bin')
        result.points.tofile(root / name)
        _add_frame(tables, spec, lidar, frame, name, position, yaw)
        if is_key:
            _add_annotations(tables, spec, frame, world, actors, result,
                             ego2global @ lidar.lidar2ego, position)
        on_frame()
    link(tables['sample'])
    link(tables['sample_data'])
    _finish_instances(tables, spec, world)
    return tables


def _reflectivity(world: World) -> np.ndarray:
    actors = np.array([kind.reflectivity for kind in KINDS])[world.kind]
    return np.append(
        actors, np.full(len(world.structures), BUILDING_REFLECTIVITY))


def _scene_tables(spec: SceneSpec, lidar: Lidar) -> Tables:
    """Records that a scene has once, and its samples."""
    tables = empty_tables()
    log = spec.token('log')
    tables['log'].append(
        dict(
            token=log,
            logfile=f'synthetic-{spec.name}',
            vehicle='synthetic',
            date_captured='2018-07-24',
            location=LOCATION))
    tables['calibrated_sensor'].append(
        dict(
            token=spec.token('calibrated_sensor', lidar.channel),
            sensor_token=token('sensor', lidar.channel),
            translation=list(lidar.translation),
            rotation=list(lidar.rotation),
            camera_intrinsic=[]))
    for i in range(spec.num_samples):
        tables['sample'].append(
            dict(
                token=spec.token('sample', i),
                timestamp=spec.timestamp(i * FRAMES_PER_SAMPLE),
                scene_token=spec.token('scene')))
    tables['scene'].append(
        dict(
            token=spec.token('scene'),
            log_token=log,
            nbr_samples=spec.num_samples,
            first_sample_token=spec.token('sample', 0),
            last_sample_token=spec.token('sample', spec.num_samples - 1),
            name=spec.name,
            description='synthetic: winding road, work zone, pedestrians'))
    return tables


def _add_frame(tables: Tables, spec: SceneSpec, lidar: Lidar, frame: int,
               filename: str, position: np.ndarray, yaw: float) -> None:
    """Records of one LiDAR frame."""
    key = spec.token('sample_data', lidar.channel, frame)
    timestamp = spec.timestamp(frame)
    tables['ego_pose'].append(
        dict(
            token=key,
            timestamp=timestamp,
            rotation=yaw_quaternion(yaw),
            translation=position.tolist()))
    # A sweep belongs to the key frame that follows it.
    sample = -(-frame // FRAMES_PER_SAMPLE)
    tables['sample_data'].append(
        dict(
            token=key,
            sample_token=spec.token('sample', sample),
            ego_pose_token=key,
            calibrated_sensor_token=spec.token('calibrated_sensor',
                                               lidar.channel),
            timestamp=timestamp,
            fileformat='pcd',
            is_key_frame=frame % FRAMES_PER_SAMPLE == 0,
            height=0,
            width=0,
            filename=filename))


def _add_annotations(tables: Tables, spec: SceneSpec, frame: int,
                     world: World, actors: np.ndarray, result: Scan,
                     lidar2global: np.ndarray, ego: np.ndarray) -> None:
    """Boxes of all actors near the ego vehicle at a key frame."""
    distance = np.linalg.norm(actors[:, :2] - ego[:2], axis=1)
    chosen = np.nonzero(distance < ANNOTATION_RANGE)[0]
    points = transform(lidar2global, result.points[:, :3].astype(np.float64))
    inside = count_inside(points, actors[chosen])
    sample = frame // FRAMES_PER_SAMPLE
    for i, count in zip(chosen.tolist(), inside.tolist(), strict=True):
        x, y, z, length, width, height, yaw = actors[i].tolist()
        kind = int(world.kind[i])
        tables['sample_annotation'].append(
            dict(
                token=spec.token('sample_annotation', sample, i),
                sample_token=spec.token('sample', sample),
                instance_token=spec.token('instance', i),
                visibility_token=visibility_token(result.visible[i]),
                attribute_tokens=attribute_tokens(kind,
                                                  world.speed[i] != 0),
                translation=[x, y, z],
                size=[width, length, height],
                rotation=yaw_quaternion(yaw),
                num_lidar_pts=count,
                num_radar_pts=0))


def _finish_instances(tables: Tables, spec: SceneSpec, world: World) -> None:
    """Tracks: the annotations of each actor, linked in time."""
    tracks: dict[str, list[dict]] = {}
    for row in tables['sample_annotation']:
        tracks.setdefault(row['instance_token'], []).append(row)
    for i, kind in enumerate(world.kind.tolist()):
        rows = tracks.get(spec.token('instance', i))
        if rows is None:
            continue
        link(rows)
        tables['instance'].append(
            dict(
                token=spec.token('instance', i),
                category_token=category_token(kind),
                nbr_annotations=len(rows),
                first_annotation_token=rows[0]['token'],
                last_annotation_token=rows[-1]['token']))
