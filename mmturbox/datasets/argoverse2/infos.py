"""Info files of a motion-forecasting set: what a data loader must know first.

``{prefix}_infos_{split}.pkl`` is, as mmdet3d's, ``dict(metainfo=...,
data_list=...)`` with one entry a scenario, sorted by scenario id whatever the
file system's order. The arrays stay in the scenarios' own files
(``read_scenario`` takes milliseconds); an entry has their paths, and sizes by
which samplers can balance batches.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ..info_check import DataError
from ..pickled_list import join_parts, write_part
from ..shards import Marker, Progress, WorkFolder, cut, run_shards
from .scenario import read_scenario, scenario_files
from .tracks import CATEGORIES, NUM_OBSERVED, OBJECT_TYPES, SCORED
from .vector_map import LANE_TYPES, MARK_TYPES

SPLITS = ('train', 'val', 'test')
INFO_VERSION = '1.0'
# Counts up when the same scenarios would give other records.
CONVERTER_VERSION = 1
SHARD_SCENARIOS = 200
_LAYOUT = ('<split>/<scenario id>/scenario_<scenario id>.parquet with the '
           'splits train, val, test')


def write_infos(root: str | os.PathLike,
                splits: Sequence[str] | None = None,
                out: str | os.PathLike | None = None,
                prefix: str = 'argoverse2',
                *,
                workers: int = 1,
                overwrite: bool = False,
                progress: Progress = lambda done, total: None) -> list[Path]:
    """Write ``{prefix}_infos_{split}.pkl`` for each split.

    Every scenario is read whole, so what is in an info file can be read. A
    run that was killed goes on where it stopped; what is done is not done
    again.

    Args:
        root: data root, with a folder for each split.
        splits: of ``SPLITS``; by default those that ``root`` has.
        out: folder for the info files, by default ``root``.
        prefix: of the files' names.
        workers: processes; the files do not depend on it.
        overwrite: replace files that were made from other scenarios.
        progress: called with scenarios of a split done and in all.

    Returns:
        The files, each complete under its name or not there.

    Raises:
        DataError: if ``root`` is no such set, a scenario is incomplete or
            broken, or files must not be overwritten; names the file and the
            remedy.
    """
    root = Path(root)
    found = {
        split: _scenario_names(root, split)
        for split in _find_splits(root, splits)
    }
    out = root if out is None else Path(out)
    paths = []
    for split, names in found.items():
        path = out / f'{prefix}_infos_{split}.pkl'
        _write_split(root, split, names, path, workers, overwrite, progress)
        paths.append(path)
    return paths


def _write_split(root: Path, split: str, names: list[str], path: Path,
                 workers: int, overwrite: bool, progress: Progress) -> None:
    scenarios = hashlib.blake2b('/'.join(names).encode(), digest_size=16)
    made_from = dict(
        converter=CONVERTER_VERSION,
        split=split,
        scenarios=scenarios.hexdigest())
    marker = Marker(path.with_suffix('.json'), made_from, [path])
    shards = cut(len(names), SHARD_SCENARIOS)
    parts = [marker.work / f'{i:06d}.pkl' for i in range(len(shards))]

    def make(i: int) -> None:
        write_part(parts[i],
                   [scenario_info(root, split, names[k]) for k in shards[i]])

    with marker.alone(overwrite) as done:
        if done:
            return
        work = WorkFolder(marker.work, made_from)
        run_shards(make, parts, [len(s) for s in shards], workers, progress)
        marker.begin()
        join_parts(path, _metainfo(split), parts)
        work.remove()


def scenario_info(root: Path, split: str, name: str) -> dict:
    """One entry of ``data_list``.

    Raises:
        DataError: if a file is missing or broken.
    """
    parquet, json = scenario_files(root / split / name)
    scenario = read_scenario(parquet)
    tracks, local_map = scenario.tracks, scenario.map
    past = tracks.valid[:, :NUM_OBSERVED]
    current = past[:, -1]
    return dict(
        scenario_id=tracks.scenario_id,
        scenario_path=parquet.relative_to(root).as_posix(),
        map_path=json.relative_to(root).as_posix(),
        city=tracks.city,
        focal_track_id=tracks.ids[tracks.focal_index],
        start_timestamp=int(tracks.timestamps[0]),
        end_timestamp=int(tracks.timestamps[-1]),
        num_timestamps=len(tracks.timestamps),
        num_tracks=len(tracks),
        # Seen in the past, seen at its last step, and states in the past.
        num_agents=int(past.any(1).sum()),
        num_current=int(current.sum()),
        num_agent_steps=int(past.sum()),
        num_scored=int((tracks.category == SCORED).sum()),
        num_lanes=len(local_map.lane_id),
        num_crossings=len(local_map.crossing_id),
        num_map_points=local_map.num_points)


def _metainfo(split: str) -> dict:
    return dict(
        dataset='argoverse2',
        task='motion_forecasting',
        split=split,
        object_types=OBJECT_TYPES,
        categories=CATEGORIES,
        lane_types=LANE_TYPES,
        mark_types=MARK_TYPES,
        info_version=INFO_VERSION)


def _find_splits(root: Path, splits: Sequence[str] | None) -> list[str]:
    """The splits to convert."""
    if not root.is_dir():
        raise DataError(f'the data root {root} is no folder')
    unknown = set(splits or ()) - set(SPLITS)
    if unknown:
        raise DataError(f'unknown splits {sorted(unknown)}, known are '
                        f'{list(SPLITS)}')
    there = [name for name in SPLITS if (root / name).is_dir()]
    if not there:
        raise DataError(
            f'{root} is no Argoverse 2 motion-forecasting set: expected '
            f'{_LAYOUT}; found {_listing(root)}. Give the folder that holds '
            'the split folders')
    missing = [name for name in splits or () if name not in there]
    if missing:
        raise DataError(
            f'{root} lacks the splits {missing}, it has {there}; unpack them '
            'there, or leave them out of --splits')
    return [name for name in SPLITS if name in (splits or there)]


def _scenario_names(root: Path, split: str) -> list[str]:
    """Folders of a split, sorted."""
    with os.scandir(root / split) as entries:
        names = sorted(e.name for e in entries
                       if e.is_dir() and not e.name.startswith('.'))
    if not names:
        raise DataError(
            f'{root / split} holds no scenarios: expected {_LAYOUT}; found '
            f'{_listing(root / split)}. Unpack the split there')
    return names


def _listing(folder: Path) -> str:
    names = sorted(p.name for p in folder.iterdir())
    shown = ', '.join(names[:5]) or 'nothing'
    return f'{shown} and {len(names) - 5} more' if len(names) > 5 else shown
