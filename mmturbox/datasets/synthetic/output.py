"""A generated set appears whole under its name, and only once."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..files import explained
from ..info_check import DataError
from ..shards import lock_file

MARKER = 'synthetic.json'


def write_once(out: str | os.PathLike, parameters: dict, overwrite: bool,
               fill: Callable[[Path], None]) -> bool:
    """Let ``fill`` build the set in a sibling folder, then give it its name.

    Args:
        out: the folder that is to hold the set.
        parameters: what the set depends on; kept in it as ``MARKER``.
        overwrite: replace a synthetic set that has other parameters, and
            all that was put into it.
        fill: writes everything into the empty folder it is given.

    Returns:
        False if ``out`` holds this very set already, else True.

    Raises:
        ValueError: if ``out`` holds something else, or there is no space or
            right to write.
    """
    # What a link names is replaced, not the link.
    out = Path(os.path.realpath(out))
    if not _must_write(out, parameters, overwrite):
        return False
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _beside(out, 'lock')
        with open(lock, 'w') as file:
            if not lock_file(file, lock):
                raise DataError(f'another run is writing {out}; wait for it '
                                'or choose another folder')
            try:
                if not _must_write(out, parameters, overwrite):
                    return False
                _replace(out, parameters, fill)
            finally:
                lock.unlink(missing_ok=True)
    return True


def _replace(out: Path, parameters: dict,
             fill: Callable[[Path], None]) -> None:
    """Build beside ``out``, then exchange the two by renaming."""
    new, old = _beside(out, 'partial'), _beside(out, 'old')
    # A run that was killed may have left them.
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    try:
        new.mkdir()
        fill(new)
        (new / MARKER).write_text(json.dumps(parameters))
        if out.exists():
            out.rename(old)
        new.rename(out)
    finally:
        if old.exists() and not out.exists():
            old.rename(out)
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(new, ignore_errors=True)


def _beside(out: Path, suffix: str) -> Path:
    return out.with_name(f'.{out.name}.{suffix}')


def _must_write(out: Path, parameters: dict, overwrite: bool) -> bool:
    """Whether ``out`` lacks the set; errors where it must not be touched."""
    parent = next(p for p in out.parents if p.exists())
    if not parent.is_dir():
        raise ValueError(f'{parent} is a file; {out} cannot be made below it')
    if os.path.ismount(out):
        raise ValueError(f'{out} is a mount point and cannot be replaced as '
                         'a whole; give a folder below it')
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return True
    marker = out / MARKER
    if not marker.is_file():
        raise ValueError(
            f'{out} exists and is no synthetic set (it has no {MARKER}); '
            'give an empty or a new folder')
    try:
        found = json.loads(marker.read_text())
    except ValueError:
        found = 'unknown ones'
    if found == parameters:
        return False
    if not overwrite:
        raise ValueError(
            f'{out} holds a synthetic set with other parameters, {found}, '
            f'not {parameters}; choose another folder, or replace it with '
            '--overwrite')
    return True
