"""Tracks of a motion-forecasting scenario, read from its parquet file.

Positions are in the city frame of Argoverse 2 (x east, y north, metres, up to
1e4), headings in radians from its x axis, velocities in m/s. They stay
float64: a difference of two city coordinates in float32 is off by a
millimetre.
"""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..info_check import DataError

NUM_STEPS, NUM_OBSERVED = 110, 50
STEP_SECONDS = .1
AV = 'AV'
# Orders of av2's ``ObjectType`` and ``TrackCategory``.
OBJECT_TYPES = ('vehicle', 'pedestrian', 'motorcyclist', 'cyclist', 'bus',
                'static', 'background', 'construction', 'riderless_bicycle',
                'unknown')
CATEGORIES = ('fragment', 'unscored', 'scored', 'focal')
FRAGMENT, UNSCORED, SCORED, FOCAL = range(4)

_STATE = ('position_x', 'position_y', 'heading', 'velocity_x', 'velocity_y')
_COLUMNS = ('observed', 'track_id', 'object_type', 'object_category',
            'timestep', *_STATE, 'scenario_id', 'start_timestamp',
            'end_timestamp', 'num_timestamps', 'focal_track_id', 'city')


@dataclass(frozen=True)
class Tracks:
    """N tracks over the 110 steps (11 s at 10 Hz) of a scenario.

    What a track lacks at a step is 0 and not valid; in the test split nothing
    is valid from step 50 on.

    Attributes:
        ids: names, in the order of the file.
        object_type: (N,) int64 index into ``OBJECT_TYPES``.
        category: (N,) int64 index into ``CATEGORIES``.
        valid: (N, 110) bool, where the file has a state.
        observed: (N, 110) bool, valid and in the observed past.
        position: (N, 110, 2) float64 box centre in metres, city frame.
        heading: (N, 110) float64 radians.
        velocity: (N, 110, 2) float64 m/s, city frame.
        av_index, focal_index: rows of the ego vehicle and the focal track.
        scenario_id, city: names.
        timestamps: (num_timestamps,) int64 nanoseconds, evenly spaced.
    """
    ids: tuple[str, ...]
    object_type: np.ndarray
    category: np.ndarray
    valid: np.ndarray
    observed: np.ndarray
    position: np.ndarray
    heading: np.ndarray
    velocity: np.ndarray
    av_index: int
    focal_index: int
    scenario_id: str
    city: str
    timestamps: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def read_tracks(path: str | os.PathLike) -> Tracks:
    """Read ``scenario_{id}.parquet``.

    Agrees with av2's ``load_argoverse_scenario_parquet``, but for the order
    of tracks, which is that of the file.

    Raises:
        DataError: if the file is missing, broken or no scenario; names it,
            what is wrong and the remedy.
    """
    table = _read_table(path)
    track, ids = _encode(table['track_id'])
    step = table['timestep'].to_numpy()
    _check_steps(path, track, step, ids)
    state = np.stack([table[name].to_numpy() for name in _STATE], -1)
    if not np.isfinite(state).all():
        raise _broken(path, 'a position, heading or velocity is not finite')
    # Codes count up in order of appearance, so this is each track's first row.
    first = np.unique(track, return_index=True)[1]
    types = _object_types(path, table['object_type'])
    category = table['object_category'].to_numpy()
    if not ((category >= 0) & (category < len(CATEGORIES))).all():
        raise _broken(path, 'object_category is not in 0 to 3')
    valid = np.zeros((len(ids), NUM_STEPS), dtype=bool)
    valid[track, step] = True
    observed = np.zeros_like(valid)
    observed[track, step] = table['observed'].to_numpy()
    dense = np.zeros((len(ids), NUM_STEPS, len(_STATE)))
    dense[track, step] = state
    once = {
        name: table[name][0].as_py()
        for name in ('scenario_id', 'city', 'focal_track_id',
                     'start_timestamp', 'end_timestamp', 'num_timestamps')
    }
    return Tracks(
        ids=tuple(ids),
        object_type=types[first],
        category=category[first],
        valid=valid,
        observed=observed,
        position=dense[..., :2].copy(),
        heading=dense[..., 2].copy(),
        velocity=dense[..., 3:].copy(),
        av_index=_index(path, ids, AV, 'the ego vehicle'),
        focal_index=_index(path, ids, once['focal_track_id'],
                           'the focal track'),
        scenario_id=once['scenario_id'],
        city=once['city'],
        timestamps=np.linspace(
            once['start_timestamp'], once['end_timestamp'],
            once['num_timestamps']).astype(np.int64))


def _broken(path: str | os.PathLike, what: str) -> DataError:
    return DataError(f'{path} is no Argoverse 2 scenario: {what}; download '
                     'or make it anew')


def _read_table(path: str | os.PathLike) -> Any:
    """``pyarrow.Table`` of the columns of a scenario, none of them null."""
    import pyarrow as pa
    from pyarrow import parquet
    if not os.path.isfile(path):
        raise DataError(f'{path} does not exist; copy the whole folder of '
                        'the scenario')
    kinds = dict.fromkeys(_COLUMNS, pa.string())
    kinds.update(dict.fromkeys(_STATE, pa.float64()), observed=pa.bool_())
    for name in ('timestep', 'object_category', 'num_timestamps'):
        kinds[name] = pa.int64()
    # Official files have them as float64, av2's writer gives int64.
    kinds.update(start_timestamp=None, end_timestamp=None)
    try:
        with parquet.ParquetFile(path) as file:
            missing = set(_COLUMNS) - set(file.schema_arrow.names)
            if missing:
                raise _broken(path, f'it lacks the columns {sorted(missing)}')
            table = file.read(list(_COLUMNS), use_threads=False)
        columns = {
            name: table[name].cast(kind) if kind else table[name]
            for name, kind in kinds.items()
        }
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, f'it cannot be read ({error})') from error
    if not len(table):
        raise _broken(path, 'it has no rows')
    empty = [name for name in _COLUMNS if columns[name].null_count]
    if empty:
        raise _broken(path, f'values are missing in the columns {empty}')
    return columns


def _encode(column: Any) -> tuple[np.ndarray, list[str]]:
    """(R,) codes in order of appearance, and what they stand for."""
    coded = column.combine_chunks().dictionary_encode()
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _object_types(path: str | os.PathLike, column: Any) -> np.ndarray:
    codes, names = _encode(column)
    unknown = set(names) - set(OBJECT_TYPES)
    if unknown:
        raise _broken(
            path, f'object types {sorted(unknown)} are none of '
            f'{list(OBJECT_TYPES)}')
    return np.array([OBJECT_TYPES.index(name) for name in names])[codes]


def _check_steps(path: str | os.PathLike, track: np.ndarray,
                 step: np.ndarray, ids: list[str]) -> None:
    if step.min() < 0 or step.max() >= NUM_STEPS:
        raise _broken(
            path, f'timesteps {step.min()} to {step.max()} are not within 0 '
            f'to {NUM_STEPS - 1}')
    count = np.bincount(track * NUM_STEPS + step)
    if count.max() > 1:
        twice, at = divmod(int(count.argmax()), NUM_STEPS)
        raise _broken(path, f'track {ids[twice]!r} has step {at} twice')


def _index(path: str | os.PathLike, ids: list[str], name: str,
           what: str) -> int:
    if name not in ids:
        raise _broken(path, f'{what}, track {name!r}, is not in it')
    return ids.index(name)
