"""The official nuScenes tables, row by row, and their files.

Field names, units and the file layout follow the devkit's
``docs/schema_nuscenes.md``.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from .kinds import KINDS

VERSION = 'v1.0-mini'
LOCATION = 'boston-seaport'
# The devkit's splits of v1.0-mini; none is on the CAN bus blacklist.
TRAIN_SCENES = ('scene-0061', 'scene-0553', 'scene-0655', 'scene-0757',
                'scene-0796', 'scene-1077', 'scene-1094', 'scene-1100')
VAL_SCENES = ('scene-0103', 'scene-0916')
TABLE_NAMES = ('category', 'attribute', 'visibility', 'instance', 'sensor',
               'calibrated_sensor', 'ego_pose', 'log', 'scene', 'sample',
               'sample_data', 'sample_annotation', 'map')
# Lower bounds of the visibility levels 2, 3 and 4.
_VISIBILITY = ('v0-40', 'v40-60', 'v60-80', 'v80-100')
_BOUNDS = (.4, .6, .8)

Tables = dict[str, list[dict]]


def token(*parts) -> str:
    """32 hex digits that depend on ``parts`` alone."""
    text = '/'.join(str(p) for p in parts)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def empty_tables() -> Tables:
    return {name: [] for name in TABLE_NAMES}


def merge_tables(parts: Iterable[Tables]) -> Tables:
    """All rows, in the order of ``parts``."""
    merged = empty_tables()
    for tables in parts:
        for name, rows in tables.items():
            merged[name] += rows
    return merged


def category_token(kind: int) -> str:
    return token('category', KINDS[kind].category)


def attribute_tokens(kind: int, state: int) -> list[str]:
    """Of a kind that ``MOVES``, ``WAITS`` or ``STANDS``."""
    names = KINDS[kind].attributes
    return [token('attribute', names[state])] if names else []


def visibility_token(share: float) -> str:
    """Token of the level that holds a visible share of 0 to 1."""
    return str(1 + sum(share >= bound for bound in _BOUNDS))


def shared_tables(channels: Iterable[tuple[str, str]],
                  log_tokens: list[str]) -> Tables:
    """Tables that do not belong to one scene.

    Args:
        channels: name and modality of each sensor.
        log_tokens: of all scenes' logs.
    """
    tables = empty_tables()
    attributes = sorted({a for kind in KINDS for a in kind.attributes})
    tables['category'] = [
        dict(token=category_token(i), name=kind.category, description='')
        for i, kind in enumerate(KINDS)
    ]
    tables['attribute'] = [
        dict(token=token('attribute', name), name=name, description='')
        for name in attributes
    ]
    tables['visibility'] = [
        dict(token=str(i + 1), level=level, description='')
        for i, level in enumerate(_VISIBILITY)
    ]
    tables['sensor'] = [
        dict(token=token('sensor', name), channel=name, modality=modality)
        for name, modality in channels
    ]
    map_token = token('map', LOCATION)
    tables['map'] = [
        dict(
            token=map_token,
            category='semantic_prior',
            filename=f'maps/{map_token}.png',
            log_tokens=log_tokens)
    ]
    return tables


def link(rows: list[dict]) -> None:
    """Fill ``prev`` and ``next`` of rows in time order."""
    for i, row in enumerate(rows):
        row['prev'] = rows[i - 1]['token'] if i else ''
        row['next'] = rows[i + 1]['token'] if i + 1 < len(rows) else ''


def write_tables(root: Path, tables: Tables) -> None:
    """One JSON file a table under ``root/v1.0-mini``."""
    folder = root / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLE_NAMES:
        (folder / f'{name}.json').write_text(
            json.dumps(tables[name], indent=0))
