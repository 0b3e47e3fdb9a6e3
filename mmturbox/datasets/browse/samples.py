"""Records of an info file with their files and poses resolved."""

import os
import pickle
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..info_check import DataError, check_info_file
from ..nuscenes.poses import inverse_many

_LIDAR = 'LIDAR_TOP'


@dataclass(frozen=True)
class Camera:
    """A camera at its own exposure.

    Attributes:
        path: image file.
        cam2img: (3, 3).
        lidar2cam: (4, 4) from the LiDAR's frame at the LiDAR's time.
    """
    path: Path
    cam2img: np.ndarray
    lidar2cam: np.ndarray


@dataclass(frozen=True)
class Objects:
    """N annotated boxes in the ``lidar`` frame.

    Attributes:
        boxes: (N, 7).
        names: class of each, ``'other'`` where it has no label.
        seen: (N,) bool, whether LiDAR or radar met it (or it is not known).
        velocity: (N, 2) m/s, NaN where unknown.
        tokens: instances, None where the file has none.
        track: (N,) number of the instance, -1 where the file has none.
        futures: (N, T, 2) places to come, NaN where unknown.
    """
    boxes: np.ndarray
    names: list[str]
    seen: np.ndarray
    velocity: np.ndarray
    tokens: list[str | None]
    track: np.ndarray
    futures: np.ndarray


class Sample:
    """One record.

    Frames: ``lidar`` is that of the record's points, at their time.
    """

    def __init__(self, record: dict, root: Path, classes: dict[int, str],
                 prefix: dict[str, str]):
        self.record, self.root = record, root
        self._classes, self._prefix = classes, prefix
        try:
            self.lidar2ego = np.array(record['lidar_points']['lidar2ego'])
            self.ego2global = np.array(record['ego2global'])
        except KeyError as error:
            raise DataError(
                f'record {record.get("sample_idx")} lacks {error}: only info '
                'files in the layout of nuScenes can be drawn') from None
        self.lidar2global = self.ego2global @ self.lidar2ego
        self.global2lidar = inverse_many(self.lidar2global)

    @property
    def token(self) -> str:
        return str(self.record.get('token', self.record.get('sample_idx')))

    @cached_property
    def cameras(self) -> dict[str, Camera]:
        return {
            name: Camera(
                self._find(row['img_path'], name), np.array(row['cam2img']),
                np.array(row['lidar2cam']))
            for name, row in (self.record.get('images') or {}).items()
            if row.get('img_path')
        }

    @property
    def lidar_path(self) -> Path:
        return self._find(self.record['lidar_points']['lidar_path'], _LIDAR)

    def sweeps(self, count: int) -> list[tuple[Path, np.ndarray]]:
        """Files of past scans, nearest first, and sweep-to-``lidar``."""
        rows = (self.record.get('lidar_sweeps') or [])[:count]
        return [(self._find(row['lidar_points']['lidar_path'], _LIDAR),
                 inverse_many(np.array(row['lidar_points']['lidar2sensor'])))
                for row in rows]

    @cached_property
    def objects(self) -> Objects:
        rows = self.record.get('instances') or []
        boxes = np.array([row['bbox_3d'] for row in rows],
                         dtype=np.float64).reshape(-1, 7)
        nowhere = [float('nan')] * 2
        velocity = [row.get('velocity') or nowhere for row in rows]
        return Objects(
            boxes,
            [self._classes.get(row['bbox_label_3d'], 'other')
             for row in rows],
            np.array([row.get('bbox_3d_isvalid', True) for row in rows],
                     dtype=bool),
            np.array(velocity, dtype=np.float64).reshape(-1, 2),
            [row.get('instance_token') for row in rows],
            np.array([row.get('instance_inds', -1) for row in rows],
                     dtype=np.int64),
            _futures(rows, boxes))

    @cached_property
    def ego_future(self) -> np.ndarray:
        """(T, 2) places to come of the LiDAR, in its frame now."""
        return _way(self.record.get('gt_ego_fut_trajs', ()),
                    self.record.get('gt_ego_fut_masks', ()), np.zeros(2))

    @property
    def command(self) -> str | None:
        one_hot = self.record.get('gt_ego_fut_cmd')
        return None if one_hot is None else ('right', 'left', 'straight')[int(
            np.argmax(one_hot))]

    def _find(self, name: str, channel: str) -> Path:
        """The file of a record, wherever sets have it.

        Records name files relative to the root or by their last part alone.
        """
        base = os.path.basename(name)
        folders = [
            self._prefix.get(channel, f'samples/{channel}'),
            f'samples/{channel}', f'sweeps/{channel}', ''
        ]
        places = [self.root / folder / base for folder in folders]
        places.append(self.root / name)
        return next((p for p in places if p.is_file()), places[0])


def _futures(rows: list[dict], boxes: np.ndarray) -> np.ndarray:
    ways = [
        _way(row.get('gt_agent_fut_trajs', ()),
             row.get('gt_agent_fut_masks', ()), box[:2])
        for row, box in zip(rows, boxes, strict=True)
    ]
    steps = max((len(way) for way in ways), default=0)
    out = np.full((len(ways), steps, 2), np.nan)
    for i, way in enumerate(ways):
        out[i, :len(way)] = way
    return out


def _way(offsets: Any, masks: Any, begin: np.ndarray) -> np.ndarray:
    """(T, 2) places from offsets between them; only what is known."""
    offsets = np.asarray(offsets, dtype=np.float64).reshape(-1, 2)
    known = np.cumprod(np.asarray(masks, dtype=np.float64)) > 0
    return begin + np.cumsum(offsets[known], axis=0)


class InfoFile:
    """An info file of mmdet3d 1.x.

    Args:
        path: the file.
        root: data root, the file's folder by default.
        prefix: folder of each channel below the root, where it is not
            ``samples/{channel}``.

    Raises:
        DataError: if it is missing, broken, of another layout or empty.
    """

    def __init__(self,
                 path: str | os.PathLike,
                 root: str | os.PathLike | None = None,
                 prefix: dict[str, str] | None = None):
        check_info_file(path)
        self.path = Path(path)
        self.root = self.path.parent if root is None else Path(root)
        if not self.root.is_dir():
            raise DataError(f'the data root {self.root} is no folder')
        with open(path, 'rb') as file:
            content = pickle.load(file)
        self.metainfo: dict = content['metainfo']
        self.records: list[dict] = content['data_list']
        if not self.records:
            raise DataError(f'the info file {path} has no records')
        self._prefix = prefix or {}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Sample:
        return Sample(self.records[index], self.root, self.classes,
                      self._prefix)

    @cached_property
    def classes(self) -> dict[int, str]:
        names = self.metainfo.get('categories') or {}
        if not names:
            names = {n: i for i, n in enumerate(
                self.metainfo.get('classes', ()))}
        return {i: name for name, i in names.items() if i >= 0}

    @cached_property
    def scenes(self) -> dict[str, list[int]]:
        """Places of each scene's records in the file, in time."""
        found: dict[str, list[int]] = {}
        for i, record in enumerate(self.records):
            if record.get('scene_token'):
                found.setdefault(record['scene_token'], []).append(i)
        for places in found.values():
            places.sort(key=lambda i: self.records[i]['timestamp'])
        return found
