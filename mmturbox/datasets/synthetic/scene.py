"""One scene: its files and its records.

Time starts at the first key frame (``sample``) of the scene; two follow each
second. The LiDAR turns 20 times a second and cameras expose 12 times, so
that each tenth scan and each sixth image is taken at a key frame, the others
are its sweeps. As in nuScenes, the first key frame has no sweeps, and every
frame has an ego pose of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from .annotations import Annotator
from .appearance import Looks
from .buildings import TREE
from .cameras import FULL_SIZE, Camera, camera_rig
from .can_bus import write_can_bus
from .geometry import rigid, yaw_quaternion
from .ground_classes import Ground
from .kinds import KINDS
from .lidar import Lidar, scan
from .occupancy import (
    kind_classes,
    occupancy,
    structure_classes,
    write_occupancy,
)
from .render import Renderer, encode_jpeg
from .tables import LOCATION, Tables, empty_tables, link, token
from .texture import GroundTexture
from .world import Surroundings, World

LIDAR_FRAMES, CAMERA_FRAMES = 10, 6
"""Frames from one key frame to the next."""
SAMPLE_US = 500_000
_EPOCH_US = 1_532_400_000_000_000


@dataclass(frozen=True)
class Contents:
    """What is made beside LiDAR, labels, CAN bus and map.

    Attributes:
        image_size: width, height of the cameras, None for no cameras.
        camera_sweeps: images between key frames, too.
        occupancy: voxel labels of key frames in SurroundOcc's format.
    """
    image_size: tuple[int, int] | None = FULL_SIZE
    camera_sweeps: bool = False
    occupancy: bool = False

    def __post_init__(self) -> None:
        if self.image_size is None:
            if self.camera_sweeps:
                raise ValueError('camera sweeps need cameras')
        elif not all(16 <= side <= 8192 for side in self.image_size):
            raise ValueError('images must be 16 to 8192 pixels wide and high, '
                             f'got {self.image_size}')

    @property
    def cameras(self) -> tuple[Camera, ...]:
        return camera_rig(self.image_size) if self.image_size else ()


@dataclass(frozen=True)
class SceneSpec:
    """What a scene depends on.

    Attributes:
        name: official scene name.
        index: place among the scenes, seeds it together with ``seed``.
        num_samples: key frames.
        seed: of the whole set.
        contents: what to make.
    """
    name: str
    index: int
    num_samples: int
    seed: int
    contents: Contents = Contents()

    @property
    def num_frames(self) -> int:
        """LiDAR frames."""
        return (self.num_samples - 1) * LIDAR_FRAMES + 1

    @property
    def duration(self) -> float:
        """Seconds."""
        return (self.num_samples - 1) * SAMPLE_US / 1e6

    @property
    def logfile(self) -> str:
        return f'synthetic-{self.name}'

    def token(self, table: str, *key) -> str:
        return token(self.seed, self.name, table, *key)

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.index, *key))

    def timestamp(self, frame: int, frames_per_sample: int) -> int:
        """Microseconds of a sensor's frame."""
        offset = round(frame * SAMPLE_US / frames_per_sample)
        return _EPOCH_US + self.index * 10**9 + offset


@lru_cache(maxsize=1)
def surroundings(seed: int) -> Surroundings:
    """The city that all scenes of a seed share."""
    return Surroundings.generate(np.random.default_rng((seed, 10**6)))


def generate_scene(root: Path,
                   spec: SceneSpec,
                   on_frame: Callable[[], None] = lambda: None) -> Tables:
    """Write the scene's files and give back its records.

    Args:
        root: data root that takes ``samples/``, ``sweeps/``, ``can_bus/``.
        on_frame: called after each LiDAR frame.
    """
    scene = _Scene(root, spec)
    for _ in scene.lidar_frames():
        on_frame()
    scene.occupancy_labels()
    scene.camera_frames()
    write_can_bus(root, spec.name, spec.timestamp(0, 1), spec.duration,
                  scene.world.ego_motion, scene.world.ego_route())
    return scene.finish()


class _Frames:
    """A sensor's frames: when, and where everything is.

    Attributes:
        timestamps: (T,) microseconds; ``per_sample`` frames a key frame.
        ego2global: (T, 4, 4).
        boxes: (T, N, 7) actors; ``speed`` (T, N) theirs.
    """

    def __init__(self, world: World, spec: SceneSpec,
                 per_sample: int) -> None:
        self.per_sample = per_sample
        count = (spec.num_samples - 1) * per_sample + 1
        self.timestamps = [spec.timestamp(i, per_sample)
                           for i in range(count)]
        times = (np.array(self.timestamps) - self.timestamps[0]) / 1e6
        ego = world.ego_motion(times)
        self.ego2global = np.array([
            rigid(yaw_quaternion(yaw), [*xy, 0.])
            for xy, yaw in zip(ego.xy, ego.heading, strict=True)
        ])
        self.ego_yaw = ego.heading
        motion = world.actor_motion(times)
        self.boxes, self.speed = world.boxes(motion), motion.speed

    def __len__(self) -> int:
        return len(self.timestamps)

    def is_key(self, frame: int) -> bool:
        return frame % self.per_sample == 0

    def sample(self, frame: int) -> int:
        """A sweep belongs to the key frame that follows it."""
        return -(-frame // self.per_sample)


class _Scene:
    """The making of a scene."""

    def __init__(self, root: Path, spec: SceneSpec) -> None:
        self.root, self.spec = root, spec
        self.around = surroundings(spec.seed)
        self.world = World.generate(spec.rng(0), self.around, spec.duration)
        self.lidar = Lidar()
        self.tables = empty_tables()
        self.annotator = Annotator(self.world, spec.token)
        # Of key frames: point file, boxes of everything, lidar2global.
        self._labelled: list[tuple[str, np.ndarray, np.ndarray]] = []
        self._scene_rows()

    @cached_property
    def classes(self) -> np.ndarray:
        """(N + M,) occupancy classes of actors and structures."""
        return np.concatenate([
            kind_classes(self.world.kind),
            structure_classes(self.world.structure_kind)
        ])

    @cached_property
    def ground(self) -> Ground:
        return Ground.of(self.world.city)

    def lidar_frames(self) -> Iterator[None]:
        """Scans and annotations."""
        frames = _Frames(self.world, self.spec, LIDAR_FRAMES)
        reflectivity = _reflectivity(self.world)
        self._sensor_rows(self.lidar.channel, self.lidar.translation,
                          self.lidar.rotation, [])
        for i in range(len(frames)):
            boxes = np.concatenate(
                [frames.boxes[i], self.world.structures])
            points = scan(self.lidar, boxes, reflectivity,
                          frames.ego2global[i], self.spec.rng(1, i))
            name = self._data_row(frames, i, self.lidar.channel, '.pcd.bin')
            (self.root / name).write_bytes(points.tobytes())
            if frames.is_key(i):
                lidar2global = frames.ego2global[i] @ self.lidar.lidar2ego
                self.annotator.add(frames.sample(i), boxes, frames.speed[i],
                                   points, frames.ego2global[i],
                                   lidar2global)
                self._labelled.append((name, boxes, lidar2global))
            yield

    def occupancy_labels(self) -> None:
        """Of what is annotated, of structures and of the ground."""
        if not self.spec.contents.occupancy:
            return
        actors = len(self.world.kind)
        for i, (name, boxes, lidar2global) in enumerate(self._labelled):
            there = np.append(
                self.annotator.annotated(i), np.arange(actors, len(boxes)))
            write_occupancy(
                self.root, name,
                occupancy(boxes[there], self.classes[there], self.ground,
                          lidar2global))

    def camera_frames(self) -> None:
        """Images of all cameras."""
        cameras = self.spec.contents.cameras
        if not cameras:
            return
        world, spec = self.world, self.spec
        looks = Looks(world.kind, world.size, world.structure_kind,
                      world.structures[:, 3:6], spec.rng(2), world.goes)
        texture = GroundTexture(world.city,
                                np.random.default_rng((spec.seed, 10**6 + 1)))
        renderer = Renderer(texture, looks, spec.rng(3))
        frames = _Frames(world, spec, CAMERA_FRAMES)
        for camera in cameras:
            self._sensor_rows(camera.channel, camera.translation,
                              camera.rotation, camera.cam2img.tolist())
        every = 1 if spec.contents.camera_sweeps else CAMERA_FRAMES
        for i in range(0, len(frames), every):
            boxes = np.concatenate([frames.boxes[i], world.structures])
            for k, camera in enumerate(cameras):
                image = renderer.image(camera, frames.ego2global[i], boxes,
                                       spec.rng(4, i, k))
                name = self._data_row(frames, i, camera.channel, '.jpg',
                                      camera.image_size)
                (self.root / name).write_bytes(encode_jpeg(image))

    def finish(self) -> Tables:
        """All records, linked."""
        self.annotator.finish(self.tables)
        link(self.tables['sample'])
        channels: dict[str, list[dict]] = {}
        for row in self.tables['sample_data']:
            channels.setdefault(row['calibrated_sensor_token'],
                                []).append(row)
        for rows in channels.values():
            link(rows)
        return self.tables

    def _scene_rows(self) -> None:
        spec, tables = self.spec, self.tables
        log = spec.token('log')
        tables['log'].append(
            dict(
                token=log,
                logfile=spec.logfile,
                vehicle='synthetic',
                date_captured='2018-07-24',
                location=LOCATION))
        tables['sample'] += [
            dict(
                token=spec.token('sample', i),
                timestamp=spec.timestamp(i, 1),
                scene_token=spec.token('scene'))
            for i in range(spec.num_samples)
        ]
        tables['scene'].append(
            dict(
                token=spec.token('scene'),
                log_token=log,
                nbr_samples=spec.num_samples,
                first_sample_token=spec.token('sample', 0),
                last_sample_token=spec.token('sample', spec.num_samples - 1),
                name=spec.name,
                description='synthetic city: turns, works, people crossing'))

    def _sensor_rows(self, channel: str, translation, rotation,
                     intrinsic: list) -> None:
        self.tables['calibrated_sensor'].append(
            dict(
                token=self.spec.token('calibrated_sensor', channel),
                sensor_token=token('sensor', channel),
                translation=list(translation),
                rotation=list(rotation),
                camera_intrinsic=intrinsic))
        for folder in ('samples', 'sweeps'):
            (self.root / folder / channel).mkdir(parents=True, exist_ok=True)

    def _data_row(self, frames: _Frames, frame: int, channel: str,
                  suffix: str,
                  image_size: tuple[int, int] = (0, 0)) -> str:
        """Add a frame's records.

        Returns:
            Its file name under the data root.
        """
        spec, is_key = self.spec, frames.is_key(frame)
        key = spec.token('sample_data', channel, frame)
        timestamp = frames.timestamps[frame]
        filename = (f'{"samples" if is_key else "sweeps"}/{channel}/'
                    f'{spec.logfile}__{channel}__{timestamp}{suffix}')
        self.tables['ego_pose'].append(
            dict(
                token=key,
                timestamp=timestamp,
                rotation=yaw_quaternion(frames.ego_yaw[frame]),
                translation=frames.ego2global[frame, :3, 3].tolist()))
        self.tables['sample_data'].append(
            dict(
                token=key,
                sample_token=spec.token('sample', frames.sample(frame)),
                ego_pose_token=key,
                calibrated_sensor_token=spec.token('calibrated_sensor',
                                                   channel),
                timestamp=timestamp,
                fileformat='jpg' if suffix == '.jpg' else 'pcd',
                is_key_frame=is_key,
                height=image_size[1],
                width=image_size[0],
                filename=filename))
        return filename


def _reflectivity(world: World) -> np.ndarray:
    """(N + M,) mean LiDAR intensity."""
    actors = np.array([kind.reflectivity for kind in KINDS])[world.kind]
    structures = np.where(world.structure_kind == TREE, 12., 18.)
    return np.concatenate([actors, structures])
