"""Points of all annotated objects in one file."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..files import complete_file
from ..info_check import DataError

POINTS, OFFSETS = 'points.npy', 'offsets.npy'
CHANNELS = 5


class GroundTruthStore:
    """Reads the points of objects of the ground-truth database.

    Pasting objects into scenes (``ObjectSample``) opens a small file for each
    object, which on most file systems takes longer than all else. Here the
    points of all objects lie in one memory-mapped file: reading one costs a
    page fault at most, the page cache is shared by all workers of a machine,
    and nothing is loaded that is not used. Workers that are started get the
    path, not the data.

    ``store[info['group_id']]`` are the points of an entry of
    ``{prefix}_dbinfos_train.pkl``, the same as in its ``.bin`` file.

    Args:
        folder: ``{prefix}_gt_store``, made by ``tools/create_data.py
            nuscenes``.

    Raises:
        DataError: if the folder holds no store.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        try:
            self._points = np.load(self.folder / POINTS, mmap_mode='r')
            self._offsets = np.load(self.folder / OFFSETS, mmap_mode='r')
        except (OSError, ValueError) as error:
            raise DataError(
                f'{folder} holds no store of ground-truth points ({error}); '
                'make it with tools/create_data.py nuscenes') from error

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """Points of an object.

        Returns:
            (P, 5) float32, read-only view: x, y, z in metres from the bottom
            centre of its box (lidar frame axes), intensity, time lag in
            seconds.
        """
        if not 0 <= index < len(self):
            raise IndexError(f'{self.folder} has {len(self)} objects, no '
                             f'object {index}')
        return self._points[self._offsets[index]:self._offsets[index + 1]]

    def __reduce__(self):
        return type(self), (self.folder, )


def write_store(folder: Path, parts: Sequence[Path],
                counts: np.ndarray) -> None:
    """Write a store.

    Args:
        folder: to make.
        parts: files of raw float32 points, one object after the other.
        counts: (N, ) points of each object.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    with complete_file(folder / OFFSETS) as file:
        np.save(file, offsets)
    size = int(offsets[-1]) * CHANNELS * 4
    with complete_file(folder / POINTS, needed=size) as file:
        np.lib.format.write_array_header_1_0(
            file,
            dict(
                descr='<f4',
                fortran_order=False,
                shape=(int(offsets[-1]), CHANNELS)))
        for part in parts:
            with open(part, 'rb') as source:
                shutil.copyfileobj(source, file, 1 << 20)
