"""The ground-truth database that ``ObjectSample`` pastes objects from.

Layout and points are those of mmdet3d 1.4's ``create_groundtruth_database``
for nuScenes: key frame and ten sweeps (the key frame ten times more where a
scene begins), boxes with a LiDAR or radar point, points relative to the
bottom centre of the box. Two things differ: a point right on a face may
count, and objects of no benchmark class (an animal) are left out, while
mmdet3d files them under the last class.
"""

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmturbox.ops.points_in_boxes import points_in_boxes_all

from ..files import complete_file, explained
from ..info_check import DataError
from ..pickled_list import write_part
from ..shards import Marker, Progress, WorkFolder, cut, run_shards
from .annotations import CLASSES
from .gt_store import write_store

DATABASE_VERSION = 1
_SWEEPS = 10
# Echoes of the vehicle itself, metres.
_CLOSE = 1.
_SHARD_SAMPLES = 50


def write_gt_database(root: str | os.PathLike,
                      out_dir: str | os.PathLike,
                      prefix: str = 'nuscenes',
                      *,
                      workers: int = 1,
                      overwrite: bool = False,
                      progress: Progress = lambda done, total: None
                      ) -> list[Path]:
    """Write the database of ``{prefix}_infos_train.pkl`` of ``out_dir``.

    Args:
        root: data root with the LiDAR files.
        out_dir: where the info files are and the database goes.
        prefix: of the files' names.
        workers: processes; the files do not depend on it.
        overwrite: replace a database that was made from something else.
        progress: called with samples done and in all.

    Returns:
        ``{prefix}_gt_database`` (a folder of ``.bin`` files),
        ``{prefix}_gt_store`` (see :class:`GroundTruthStore`) and
        ``{prefix}_dbinfos_train.pkl``.

    Raises:
        DataError: for files that are missing, cut short or must not be
            overwritten, no space or no right to write.
    """
    marker = database_files(out_dir, prefix)
    with marker.alone(overwrite) as done:
        if not done:
            with open(Path(out_dir) / f'{prefix}_infos_train.pkl',
                      'rb') as file:
                infos = pickle.load(file)['data_list']
            _write(Path(root), infos, marker, workers, progress)
    return marker.results


def _write(root: Path, infos: list[dict], marker: Marker, workers: int,
           progress: Progress) -> None:
    bins, store, db_infos = marker.results
    work = WorkFolder(marker.work, marker.made_from)
    pieces = cut(len(infos), _SHARD_SAMPLES)
    parts = [work.path / f'{i:05d}.pkl' for i in range(len(pieces))]
    with explained(work.path):
        (work.path / bins.name).mkdir(exist_ok=True)

    def make(i: int) -> None:
        with explained(bins):
            _make_shard(root, [infos[k] for k in pieces[i]],
                        work.path / bins.name, parts[i])

    run_shards(make, parts, [len(piece) for piece in pieces], workers,
               progress)
    entries = _numbered(parts, bins.name)
    marker.begin()
    # Parts of a write that was killed lie in it.
    shutil.rmtree(store, ignore_errors=True)
    write_store(store, [part.with_suffix('.bin') for part in parts],
                np.array([e['num_points_in_gt'] for e in entries], np.int64))
    _move_folder(work.path / bins.name, bins)
    # Last, since it is what refers to the others.
    with complete_file(db_infos) as file:
        pickle.dump(_by_class(entries), file)
    work.remove()


def _move_folder(made: Path, final: Path) -> None:
    """Rename, unless a run that was killed has done so already."""
    with explained(final):
        if any(made.iterdir()) or not final.exists():
            shutil.rmtree(final, ignore_errors=True)
            made.rename(final)


def database_files(out_dir: str | os.PathLike, prefix: str) -> Marker:
    """The files that :func:`write_gt_database` makes, and from what."""
    out = Path(out_dir)
    infos = out / f'{prefix}_infos.json'
    if not infos.is_file():
        raise DataError(f'{infos} does not exist: the info files must be made '
                        'first')
    made_from = dict(database=DATABASE_VERSION, infos=infos.read_text())
    return Marker(out / f'{prefix}_gt_database.json', made_from, [
        out / f'{prefix}_gt_database', out / f'{prefix}_gt_store',
        out / f'{prefix}_dbinfos_train.pkl'
    ])


def _numbered(parts: list[Path], folder: str) -> list[dict]:
    """Entries of all shards in order, ``group_id`` counting through."""
    entries = []
    for part in parts:
        with open(part, 'rb') as file:
            entries += pickle.load(file)
    for i, entry in enumerate(entries):
        entry['path'] = f'{folder}/{entry["path"]}'
        entry['group_id'] = i
    return entries


def _by_class(entries: list[dict]) -> dict[str, list[dict]]:
    out: dict[str, list[dict]] = {}
    for entry in entries:
        out.setdefault(entry['name'], []).append(entry)
    return out


def _make_shard(root: Path, infos: list[dict], bins: Path,
                part: Path) -> None:
    """One ``.bin`` an object, all their points again in one file, and the
    entries, which are written last."""
    # A forked process must not start threads: the parent may have had some.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    entries = []
    try:
        with complete_file(part.with_suffix('.bin')) as file:
            for info in infos:
                for entry, points in _objects(root, info):
                    data = points.tobytes()
                    (bins / entry['path']).write_bytes(data)
                    file.write(data)
                    entries.append(entry)
    finally:
        torch.set_num_threads(threads)
    write_part(part, entries)


def _objects(root: Path, info: dict) -> list[tuple[dict, np.ndarray]]:
    """Entries (path without folder) and points of one sample's objects."""
    kept = [i for i in info['instances'] if i['bbox_3d_isvalid']]
    if not kept:
        return []
    boxes = _bottom_boxes(kept)
    points = load_points(root, info)
    inside = points_in_boxes_all(
        torch.from_numpy(np.ascontiguousarray(points[None, :, :3])),
        torch.from_numpy(np.ascontiguousarray(boxes[None, :, :7])))[0].numpy()
    out = []
    for i, instance in enumerate(kept):
        label = instance['bbox_label_3d']
        if label < 0:
            continue
        own = points[inside[:, i] != 0]
        own[:, :3] -= boxes[i, :3]
        name = CLASSES[label]
        entry = dict(
            name=name,
            path=f'{info["sample_idx"]}_{name}_{i}.bin',
            image_idx=info['sample_idx'],
            gt_idx=i,
            box3d_lidar=boxes[i],
            num_points_in_gt=len(own),
            difficulty=np.int32(0))
        out.append((entry, own))
    return out


def _bottom_boxes(kept: list[dict]) -> np.ndarray:
    """(N, 9) float32 bottom centre, sizes, yaw, velocity (0 if unknown)."""
    boxes = np.array([[*i['bbox_3d'], *i['velocity']] for i in kept],
                     np.float32)
    boxes[:, 7:][np.isnan(boxes[:, 7])] = 0
    boxes[:, 2] -= boxes[:, 5] * np.float32(.5)
    return boxes


def load_points(root: Path, info: dict) -> np.ndarray:
    """(P, 5) float32 points of the key frame and its sweeps.

    As ``LoadPointsFromMultiSweeps(sweeps_num=10, pad_empty_sweeps=True,
    remove_close=True)`` loads them, so that pasted objects look like those
    that the training pipeline loads; the fifth column is the time lag.
    """
    key = _read(root / 'samples' / 'LIDAR_TOP' /
                info['lidar_points']['lidar_path'])
    key[:, 4] = 0
    if 'lidar_sweeps' not in info:
        return np.concatenate([key, *[_without_close(key)] * _SWEEPS])
    clouds: list[Any] = [key]
    for sweep in info['lidar_sweeps'][:_SWEEPS]:
        points = _without_close(_read(root /
                                      sweep['lidar_points']['lidar_path']))
        lidar2sensor = np.array(sweep['lidar_points']['lidar2sensor'])
        points[:, :3] = points[:, :3] @ lidar2sensor[:3, :3]
        points[:, :3] -= lidar2sensor[:3, 3]
        points[:, 4] = info['timestamp'] - sweep['timestamp']
        clouds.append(points)
    return np.concatenate(clouds)


def _read(path: Path) -> np.ndarray:
    try:
        return np.fromfile(path, np.float32).reshape(-1, 5)
    except FileNotFoundError:
        raise DataError(f'the LiDAR file {path} does not exist; unpack the '
                        'sensor archives again') from None
    except ValueError:
        raise DataError(
            f'the LiDAR file {path} was cut short (size '
            f'{path.stat().st_size} bytes is no multiple of 20); unpack the '
            'sensor archives again') from None


def _without_close(points: np.ndarray) -> np.ndarray:
    return points[~(np.abs(points[:, :2]) < _CLOSE).all(1)]
