"""Opening the tables of a nuScenes data root, and what may be wrong."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ..info_check import DataError

TABLES = ('attribute', 'calibrated_sensor', 'category', 'ego_pose',
          'instance', 'log', 'map', 'sample', 'sample_annotation',
          'sample_data', 'scene', 'sensor', 'visibility')
# Info file suffix -> devkit split, by table version.
SPLITS = {
    'v1.0-mini': dict(train='mini_train', val='mini_val'),
    'v1.0-trainval': dict(train='train', val='val'),
    'v1.0-test': dict(test='test'),
}
_DOWNLOAD = 'https://www.nuscenes.org/nuscenes#download'


def splits_of(version: str) -> dict[str, str]:
    """Info file suffix -> devkit split.

    Raises:
        DataError: for a version without official splits.
    """
    if version not in SPLITS:
        raise DataError(f'no official splits for version {version!r}, known '
                        f'are {sorted(SPLITS)}')
    return SPLITS[version]


def found_versions(root: str | os.PathLike) -> list[str]:
    """Folders of ``root`` that hold tables."""
    return sorted(p.parent.name for p in Path(root).glob('*/sample.json'))


def check_root(root: str | os.PathLike, version: str) -> None:
    """Raise unless ``root`` holds all tables of ``version``.

    Raises:
        DataError: says which versions are there, or which tables lack.
    """
    splits_of(version)
    root = Path(root)
    if not root.is_dir():
        raise DataError(f'the data root {root} is no folder')
    versions = found_versions(root)
    lacking = [
        name for name in TABLES
        if not (root / version / f'{name}.json').is_file()
    ]
    if len(lacking) == len(TABLES):
        found = (f'it has {", ".join(versions)}; give one of these with '
                 '--version' if versions else 'it has no version at all, so '
                 'it is no nuScenes data root (the folder that holds maps, '
                 'samples, sweeps and v1.0-*)')
        raise DataError(f'{root} has no tables of {version} (no folder '
                        f'{root / version}): {found}')
    if lacking:
        raise DataError(
            f'{root / version} lacks {len(lacking)} of {len(TABLES)} tables: '
            f'{", ".join(f"{name}.json" for name in lacking)}; unpack the '
            f'metadata archive of {version} again ({_DOWNLOAD})')


def open_tables(root: str | os.PathLike, version: str) -> Any:
    """The devkit's ``NuScenes``.

    Raises:
        DataError: on anything that keeps the devkit from reading it.
    """
    check_root(root, version)
    from nuscenes.nuscenes import NuScenes
    try:
        nusc = NuScenes(version, os.fspath(root), verbose=False)
    except ValueError as error:
        raise DataError(
            f'{_broken_table(Path(root) / version)} is no JSON ({error}); it '
            'was cut short or damaged: unpack the metadata archive of '
            f'{version} again') from error
    except (AssertionError, KeyError, IndexError, OSError) as error:
        raise DataError(
            f'the devkit cannot open {Path(root) / version}: '
            f'{type(error).__name__}: {error}; unpack the metadata archive '
            f'and the maps again ({_DOWNLOAD})') from error
    needed = {'sample', 'sample_data', 'sample_annotation'}
    if version == 'v1.0-test':
        needed.remove('sample_annotation')
    for name in sorted(needed):
        if not getattr(nusc, name):
            raise DataError(
                f'{Path(root) / version / name}.json has no rows; unpack the '
                f'metadata archive of {version} again ({_DOWNLOAD})')
    return nusc


def _broken_table(folder: Path) -> Path:
    """The first table that is no JSON, the folder if all are."""
    for name in TABLES:
        path = folder / f'{name}.json'
        try:
            json.loads(path.read_bytes())
        except ValueError:
            return path
    return folder


def fingerprint(root: str | os.PathLike, version: str) -> str:
    """Digest of all tables' bytes: the same for a copy of the data."""
    digest = hashlib.blake2b(digest_size=16)
    for name in TABLES:
        with open(Path(root) / version / f'{name}.json', 'rb') as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
