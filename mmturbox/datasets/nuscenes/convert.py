"""From a data root to all files that training reads."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..info_check import DataError
from ..shards import Progress
from .ego import CanBus
from .infos import info_files, split_samples, write_infos
from .sensor_files import check_files
from .tables import check_root, open_tables


def convert_nuscenes(
    root: str | os.PathLike,
    version: str,
    out_dir: str | os.PathLike | None = None,
    prefix: str = 'nuscenes',
    *,
    max_sweeps: int = 10,
    cam_instances: bool = True,
    gt_database: bool = True,
    workers: int = 1,
    overwrite: bool = False,
    allow_missing: bool = False,
    announce: Callable[[str], None] = lambda text: None,
    progress: Callable[[str], Progress] = lambda stage: lambda done, total:
    None
) -> list[Path]:
    """Write the info files and the ground-truth database.

    What is there already is left alone, what was begun is finished.

    Args:
        root: nuScenes data root (maps, samples, sweeps, v1.0-*).
        version: such as ``'v1.0-trainval'``.
        out_dir: where the files go, the root if None.
        prefix: of the files' names.
        max_sweeps: past LiDAR frames a sample lists at most.
        cam_instances: 2D boxes of the cameras, for monocular detectors.
        gt_database: objects for ``ObjectSample``, from the training split.
        workers: processes; the files do not depend on it.
        overwrite: replace files that were made from something else.
        allow_missing: leave out samples that lack sensor files.
        announce: told what is worth knowing.
        progress: gives the progress callback of a stage.

    Returns:
        The files.

    Raises:
        DataError: names what is wrong and what to do.
    """
    check_root(root, version)
    out = Path(root if out_dir is None else out_dir)
    marker = info_files(root, version, out, prefix, max_sweeps,
                        cam_instances)
    paths = marker.results
    # Opening the tables takes minutes, so a look at the marker comes first.
    if not marker.is_done(overwrite=True):
        announce(f'opening the tables of {version}')
        nusc = open_tables(root, version)
        _announce_can_bus(nusc, announce)
        with _fitting(Path(root) / version):
            paths = write_infos(
                nusc,
                out,
                prefix,
                max_sweeps,
                cam_instances=cam_instances,
                workers=workers,
                overwrite=overwrite,
                leave_out=_left_out(nusc, max_sweeps, allow_missing,
                                    announce),
                tables=marker.made_from['tables'],
                progress=progress('samples'))
    else:
        with marker.alone(overwrite):
            pass  # What a killed run left is removed.
    if gt_database and any(p.name.endswith('_train.pkl') for p in paths):
        from .gt_database import write_gt_database
        paths = paths + write_gt_database(
            root,
            out,
            prefix,
            workers=workers,
            overwrite=overwrite,
            progress=progress('ground-truth database'))
    return paths


@contextmanager
def _fitting(tables: Path) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise DataError(
            f'the tables in {tables} do not fit together: no row or column '
            f'{error}; unpack the metadata archive again') from error


def _left_out(nusc: Any, max_sweeps: int, allow_missing: bool,
              announce: Callable[[str], None]) -> Collection[str]:
    samples = [s for rows in split_samples(nusc).values() for s in rows]
    lacking = check_files(nusc, samples, max_sweeps, allow_missing)
    if lacking:
        announce(f'{len(lacking)} of {len(samples)} samples lack sensor files '
                 f'(such as {next(iter(lacking.values()))}) and are left out')
    return lacking


def _announce_can_bus(nusc: Any, announce: Callable[[str], None]) -> None:
    bus = CanBus(nusc.dataroot)
    lacking = bus.lacking(scene['name'] for scene in nusc.scene)
    if lacking:
        announce(
            f'{len(lacking)} of {len(nusc.scene)} scenes have no CAN bus '
            f'messages in {bus.folder} (such as {lacking[0]}): accelerations, '
            'rates and steering in can_bus and ego_status are zeros there. '
            'For planning models, unpack the files of the CAN bus expansion '
            'right into this folder and run this again')
