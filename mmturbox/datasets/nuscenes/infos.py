"""mmdet3d 1.x info files from nuScenes tables."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..pickled_list import join_parts, write_part
from ..shards import Marker, Progress, WorkFolder, cut, run_shards
from .annotations import CLASSES
from .ego import CanBus
from .records import RecordMaker
from .tables import fingerprint, splits_of

INFO_VERSION = '1.1'
# Counts up when the same tables would give other records.
CONVERTER_VERSION = 2
# Large enough that a file system bears the number of shards, small enough
# that little is lost by a kill and the processes end together.
SHARD_SAMPLES = 100


def write_infos(nusc: Any,
                out_dir: str | os.PathLike,
                prefix: str = 'nuscenes',
                max_sweeps: int = 10,
                *,
                cam_instances: bool = True,
                workers: int = 1,
                overwrite: bool = False,
                leave_out: Collection[str] = (),
                tables: str | None = None,
                progress: Progress = lambda done, total: None) -> list[Path]:
    """Write ``{prefix}_infos_{train,val}.pkl`` (or ``_test``).

    A run that was killed goes on where it stopped; one that is done does
    nothing.

    Args:
        nusc: ``nuscenes.NuScenes`` of an official version.
        out_dir: usually the data root.
        prefix: of the files' names.
        max_sweeps: past LiDAR frames a sample lists at most.
        cam_instances: 2D boxes of the cameras, for monocular detectors.
        workers: processes; the files do not depend on it.
        overwrite: replace files that were made from something else.
        leave_out: tokens of samples that get no record. ``prev`` and
            ``next`` of other records still name them, and ``frame_idx`` counts
            them.
        tables: their ``fingerprint`` if it is known.
        progress: called with samples done and in all.

    Returns:
        The files, each complete under its name or not there.

    Raises:
        DataError: for a table version without official splits, files that
            must not be overwritten, no space or no right to write.
    """
    samples = split_samples(nusc, leave_out)
    marker = info_files(nusc.dataroot, nusc.version, out_dir, prefix,
                        max_sweeps, cam_instances, leave_out, tables)
    with marker.alone(overwrite) as done:
        if done:
            return marker.results
        work = WorkFolder(marker.work, marker.made_from)
        make = RecordMaker(nusc, max_sweeps, nusc.version != 'v1.0-test',
                           cam_instances)
        parts = make_parts(make, samples, work.path, workers, progress)
        marker.begin()
        for name, path in zip(samples, marker.results, strict=True):
            join_parts(path, metainfo(nusc), parts[name])
        work.remove()
    return marker.results


def info_files(root: str | os.PathLike,
               version: str,
               out_dir: str | os.PathLike,
               prefix: str,
               max_sweeps: int,
               cam_instances: bool,
               leave_out: Collection[str] = (),
               tables: str | None = None) -> Marker:
    """The files that :func:`write_infos` makes, and from what."""
    out = Path(out_dir)
    made_from = dict(
        converter=CONVERTER_VERSION,
        version=version,
        tables=tables or fingerprint(root, version),
        can_bus=CanBus(root).fingerprint(),
        max_sweeps=max_sweeps,
        cam_instances=cam_instances,
        left_out=sorted(leave_out))
    return Marker(
        out / f'{prefix}_infos.json', made_from,
        [out / f'{prefix}_infos_{name}.pkl' for name in splits_of(version)])


def split_samples(nusc: Any,
                  leave_out: Collection[str] = ()) -> dict[str, list[dict]]:
    """``sample`` rows by info file suffix, in the order of the table."""
    from nuscenes.utils.splits import create_splits_scenes
    scenes_of, leave_out, samples = create_splits_scenes(), {*leave_out}, {}
    for name, split in splits_of(nusc.version).items():
        wanted = set(scenes_of[split])
        samples[name] = [
            s for s in nusc.sample if s['token'] not in leave_out
            and nusc.get('scene', s['scene_token'])['name'] in wanted
        ]
    return samples


def make_parts(make: RecordMaker, samples: dict[str, list[dict]],
               folder: Path, workers: int,
               progress: Progress) -> dict[str, list[Path]]:
    """Records of all samples as files for ``join_parts``, by suffix."""
    jobs, parts = [], {}
    for name, rows in samples.items():
        pieces = cut(len(rows), SHARD_SAMPLES)
        parts[name] = [
            folder / f'{name}-{i:05d}.pkl' for i in range(len(pieces))
        ]
        jobs += [(path, rows, piece)
                 for path, piece in zip(parts[name], pieces, strict=True)]

    def make_part(i: int) -> None:
        path, rows, piece = jobs[i]
        write_part(path, [make(rows[k], k) for k in piece])

    run_shards(make_part, [job[0] for job in jobs],
               [len(job[2]) for job in jobs], workers, progress)
    return parts


def metainfo(nusc: Any) -> dict:
    """``metainfo`` of the info files."""
    from nuscenes.eval.detection.utils import category_to_detection_name
    categories = {name: i for i, name in enumerate(CLASSES)}
    for row in nusc.category:
        if category_to_detection_name(row['name']) is None:
            categories[row['name']] = -1
    return dict(
        categories=categories,
        dataset='nuscenes',
        version=nusc.version,
        info_version=INFO_VERSION)
