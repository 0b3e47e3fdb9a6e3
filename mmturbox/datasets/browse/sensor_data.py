"""Images and points of a sample; what to do where a file is missing."""

from pathlib import Path

import cv2
import numpy as np

from ..info_check import DataError
from . import draw
from .samples import Sample
from .style import MISSING


def read_image(path: Path, width: int,
               allow_missing: bool) -> tuple[np.ndarray, float]:
    """An image in blue, green, red, ``width`` pixels wide, and its scale.

    Args:
        path: image file.
        width: of the result; the height follows.
        allow_missing: give a grey picture with the file's name, of scale 0,
            where there is no such file.

    Raises:
        DataError: for a file that is missing or no image; names it.
    """
    if not path.is_file():
        _must_not_be_missing(path, 'image', allow_missing)
        panel = np.full((round(width * 9 / 16), width, 3), MISSING, np.uint8)
        draw.text(panel, 'missing:', (10, 60))
        draw.text(panel, path.name, (10, 80), .4)
        return panel, 0.
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image is None:
        raise DataError(f'{path} is no image or was cut short; unpack or make '
                        'it anew')
    scale = width / image.shape[1]
    size = (width, max(round(image.shape[0] * scale), 1))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA), scale


def read_points(sample: Sample, sweeps: int,
                allow_missing: bool) -> tuple[np.ndarray, np.ndarray]:
    """(P, 3) points of the key frame and of past scans, frame ``lidar``.

    Raises:
        DataError: for a file that is missing or has another number of
            columns than the record says.
    """
    columns = sample.record['lidar_points'].get('num_pts_feats', 5)
    key = _read_scan(sample.lidar_path, columns, allow_missing)
    past = [np.zeros((0, 3))]
    for path, sweep2lidar in sample.sweeps(sweeps):
        scan = _read_scan(path, columns, allow_missing)
        past.append(scan @ sweep2lidar[:3, :3].T + sweep2lidar[:3, 3])
    return key, np.concatenate(past)


def _read_scan(path: Path, columns: int, allow_missing: bool) -> np.ndarray:
    if not path.is_file():
        _must_not_be_missing(path, 'LiDAR file', allow_missing)
        return np.zeros((0, 3))
    values = np.fromfile(path, dtype=np.float32)
    if len(values) % columns:
        raise DataError(
            f'{path} has {len(values)} values, no multiple of the {columns} '
            'a point has; it was cut short or its info file is of another '
            'set')
    return values.reshape(-1, columns)[:, :3].astype(np.float64)


def read_occupancy(sample: Sample) -> np.ndarray | None:
    """(V, 4) voxels of SurroundOcc's label, None where there is none."""
    path = (sample.root / 'nuscenes_occ' / 'samples' /
            f'{sample.lidar_path.name}.npy')
    return np.load(path) if path.is_file() else None


def _must_not_be_missing(path: Path, kind: str, allow_missing: bool) -> None:
    if not allow_missing:
        raise DataError(
            f'the {kind} {path} does not exist; give the data root with '
            '--root, or draw without such files with --allow-missing')
