"""Which samples lack files that their record names."""

import os
from pathlib import Path
from typing import Any

from ..info_check import DataError
from .records import camera_channels, sweep_rows


class SensorFiles:
    """What is in the folders of a data root, each listed once.

    A listing costs less than asking for hundreds of thousands of files one by
    one, above all on a network file system.
    """

    def __init__(self, root: str | os.PathLike):
        self.root = Path(root)
        self._names: dict[str, frozenset[str]] = {}

    def __contains__(self, filename: str) -> bool:
        folder, _, name = filename.rpartition('/')
        if folder not in self._names:
            path = self.root / folder
            self._names[folder] = frozenset(
                os.listdir(path) if path.is_dir() else ())
        return name in self._names[folder]


def incomplete_samples(nusc: Any, samples: list[dict],
                       max_sweeps: int) -> dict[str, str]:
    """Token of each sample that lacks a file -> the first such file.

    Args:
        nusc: the devkit's ``NuScenes``.
        samples: ``sample`` rows.
        max_sweeps: past LiDAR frames that belong to a sample.
    """
    files, found = SensorFiles(nusc.dataroot), {}
    for sample in samples:
        tokens = [
            sample['data'][channel]
            for channel in ('LIDAR_TOP', *camera_channels(sample))
        ]
        rows = [nusc.get('sample_data', token) for token in tokens]
        for row in (*rows, *sweep_rows(nusc, rows[0], max_sweeps)):
            if row['filename'] not in files:
                found[sample['token']] = row['filename']
                break
    return found


def check_files(nusc: Any, samples: list[dict], max_sweeps: int,
                allow_missing: bool) -> dict[str, str]:
    """Samples to leave out, with a file that each lacks.

    Raises:
        DataError: if files are missing and must not be, or no sample is left.
    """
    lacking = incomplete_samples(nusc, samples, max_sweeps)
    if not lacking:
        return lacking
    first = Path(nusc.dataroot) / next(iter(lacking.values()))
    text = (f'{len(lacking)} of {len(samples)} samples lack sensor files; the '
            f'first that is missing is {first}')
    if len(lacking) == len(samples):
        raise DataError(f'{text}. Unpack the sensor archives of '
                        f'{nusc.version} into {nusc.dataroot}')
    if not allow_missing:
        raise DataError(
            f'{text}. Unpack the sensor archives of {nusc.version} into '
            f'{nusc.dataroot}, or leave these samples out with '
            '--allow-missing')
    return lacking
