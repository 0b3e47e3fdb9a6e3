"""The vehicle itself: CAN messages, its way to come, the driving command.

``can_bus`` has the layout that BEVFormer's dataset hands to its model,
``ego_status``, ``gt_ego_fut_*`` the one of SparseDrive's converter.
"""

import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..info_check import DataError
from .poses import calibrations, inverse_many, sensor_poses

EGO_STEPS = 6
# Lateral metres after three seconds that make a turn.
_TURN = 2.
_MESSAGES = ('pose', 'steeranglefeedback')


class CanBus:
    """CAN messages by scene, through the devkit's reader.

    Args:
        root: data root; a root without the ``can_bus`` folder has none.
    """

    def __init__(self, root: str | os.PathLike):
        self.root = Path(root)
        self.folder = self.root / 'can_bus'
        self._messages = lru_cache(maxsize=4)(self._read)

    def __reduce__(self):
        return type(self), (self.root, )

    @property
    def available(self) -> bool:
        return self.folder.is_dir()

    def _reader(self) -> Any:
        from nuscenes.can_bus.can_bus_api import NuScenesCanBus
        return NuScenesCanBus(dataroot=os.fspath(self.root))

    def fingerprint(self) -> str:
        """Digest of the names and sizes of the files."""
        files = sorted((p.name, p.stat().st_size)
                       for p in self.folder.glob('*.json'))
        return hashlib.blake2b(repr(files).encode(), digest_size=8).hexdigest()

    def lacking(self, scenes: Iterable[str]) -> list[str]:
        """Scenes without messages, apart from those that must have none."""
        blacklist = self._reader().can_blacklist if self.available else ()
        return [
            scene for scene in scenes if int(scene[-4:]) not in blacklist
            and any(table is None for table in self._read(scene))
        ]

    def state(self, scene: str,
              timestamp: int) -> tuple[np.ndarray, np.ndarray]:
        """What the bus said at a time.

        Args:
            scene: name.
            timestamp: microseconds.

        Returns:
            (9, ) acceleration, rotation rate and velocity of the first pose
            message after ``timestamp`` (m/s^2, rad/s, m/s, ego frame), the
            last one if there is none, and (10, ) float32: the same three of
            the nearest message and the steering angle (left is positive).
            Zeros where there are no messages.
        """
        pose, steering = self._messages(scene)
        motion, status = np.zeros(9), np.zeros(10, np.float32)
        if pose is not None:
            # BEVFormer's converter takes the pose of the last message up to
            # the sample, but these of the one at which its search ended.
            after = np.searchsorted(pose[:, 0], timestamp, side='right')
            motion = pose[min(after, len(pose) - 1), 1:]
            if steering is not None:
                status[:9] = pose[_nearest(pose[:, 0], timestamp), 1:]
                status[9] = steering[_nearest(steering[:, 0], timestamp), 1]
        return motion, status

    def _read(self, scene: str) -> tuple[np.ndarray | None, ...]:
        """(P, 10) time and pose messages, (S, 2) time and steering."""
        if not self.available:
            return None, None
        reader, tables = self._reader(), []
        for name in _MESSAGES:
            path = self.folder / f'{scene}_{name}.json'
            # The devkit knows logs whose messages must not be used.
            if int(scene[-4:]) in reader.can_blacklist or not path.is_file():
                tables.append(None)
                continue
            try:
                messages = reader.get_messages(scene, name)
                rows = [_row(message, name) for message in messages]
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f'{path} holds no CAN bus messages ({error!r}); unpack '
                    'the CAN bus expansion again') from error
            tables.append(np.array(rows, dtype=np.float64) if rows else None)
        return tuple(tables)


def _row(message: dict, name: str) -> tuple:
    if name == 'pose':
        return (message['utime'], *message['accel'],
                *message['rotation_rate'], *message['vel'])
    return message['utime'], message['value']


def _nearest(times: np.ndarray, time: float) -> int:
    """Index of the message nearest in time, the later one of two."""
    i = int(np.searchsorted(times, time))
    if i == len(times) or (i > 0 and time - times[i - 1] < times[i] - time):
        i -= 1
    return i


def can_bus_vector(row: dict, motion: np.ndarray) -> np.ndarray:
    """(18, ) float64: position, quaternion, motion (9), yaw, yaw in degrees.

    Position, quaternion and yaw (0 to 2 pi, 0 to 360) are those of the
    ``ego_pose`` row of the LiDAR, the same frame as all else of a record.
    """
    w, x, y, z = row['rotation']
    yaw = np.arctan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))
    yaw %= 2 * np.pi
    return np.array(
        [*row['translation'], *row['rotation'], *motion, yaw,
         np.degrees(yaw)])


def ego_future(nusc: Any, sample: dict) -> dict:
    """``gt_ego_fut_*``: where the LiDAR goes, seen from where it is now.

    Returns:
        trajs (6, 2) float32 offsets in the lidar frame at 2 Hz, the vehicle
        standing still after the last key frame; masks (6, ) float32; cmd
        (3, ) float32 one-hot right, left, straight.
    """
    samples = [sample]
    while samples[-1]['next'] != '' and len(samples) <= EGO_STEPS:
        samples.append(nusc.get('sample', samples[-1]['next']))
    rows = [nusc.get('sample_data', s['data']['LIDAR_TOP']) for s in samples]
    lidar2ego, ego2global = sensor_poses(nusc, rows, calibrations(nusc, rows))
    lidar2global = ego2global @ lidar2ego
    places = (inverse_many(lidar2global[0]) @ lidar2global)[:, :2, 3]
    steps = len(places) - 1
    trajs = np.zeros((EGO_STEPS, 2), np.float32)
    trajs[:steps] = np.diff(places, axis=0)
    masks = np.zeros(EGO_STEPS, np.float32)
    masks[:steps] = 1
    side = places[-1, 0]
    command = np.zeros(3, np.float32)
    command[0 if side >= _TURN else 1 if side <= -_TURN else 2] = 1
    return dict(
        gt_ego_fut_trajs=trajs,
        gt_ego_fut_masks=masks,
        gt_ego_fut_cmd=command)
