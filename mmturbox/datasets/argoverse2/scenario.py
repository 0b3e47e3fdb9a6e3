"""A motion-forecasting scenario: its tracks and the map around them."""

import os
from dataclasses import dataclass
from pathlib import Path

from ..info_check import DataError
from .tracks import Tracks, read_tracks
from .vector_map import VectorMap, read_map


@dataclass(frozen=True)
class Scenario:
    """What the two files of a scenario hold."""
    tracks: Tracks
    map: VectorMap


def read_scenario(path: str | os.PathLike) -> Scenario:
    """Read a scenario.

    Args:
        path: its folder, or its parquet file with the map beside it.

    Raises:
        DataError: if a file is missing or broken; names it and the remedy.
    """
    parquet, json = scenario_files(path)
    return Scenario(read_tracks(parquet), read_map(json))


def scenario_files(path: str | os.PathLike) -> tuple[Path, Path]:
    """The parquet file and the map of a scenario.

    Raises:
        DataError: unless a folder has exactly one scenario; says what was
            expected and found.
    """
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob('scenario_*.parquet'))
        if len(found) != 1:
            names = sorted(p.name for p in path.iterdir())[:5]
            raise DataError(
                f'{path} has {len(found)} files scenario_<id>.parquet where '
                'a folder of an Argoverse 2 motion-forecasting scenario has '
                f'one (found: {", ".join(names) or "nothing"}); copy the '
                'whole folder of the scenario, or give another folder')
        path = found[0]
    scenario_id = path.stem.removeprefix('scenario_')
    return path, path.with_name(f'log_map_archive_{scenario_id}.json')
