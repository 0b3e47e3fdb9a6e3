"""A generated set appears whole under its name, and only once."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..files import explained

MARKER = 'synthetic.json'


def write_once(out: str | os.PathLike, parameters: dict, overwrite: bool,
               fill: Callable[[Path], None]) -> bool:
    """Let ``fill`` build the set in a sibling folder, then give it its name.

    Args:
        out: the folder that is to hold the set.
        parameters: what the set depends on; kept in it as ``MARKER``.
        overwrite: replace a synthetic set that has other parameters.
        fill: writes everything into the empty folder it is given.

    Returns:
        False if ``out`` holds this very set already, else True.

    Raises:
        ValueError: if ``out`` holds something else, or there is no space or
            right to write.
    """
    out = Path(os.path.abspath(out))
    if not _must_write(out, parameters, overwrite):
        return False
    partial_out = out.with_name(f'.{out.name}.partial-{os.getpid()}')
    shutil.rmtree(partial_out, ignore_errors=True)
    try:
        with explained(out):
            partial_out.mkdir(parents=True)
            fill(partial_out)
            (partial_out / MARKER).write_text(json.dumps(parameters))
        if not _must_write(out, parameters, overwrite):
            return False
        if out.exists():
            shutil.rmtree(out)
        partial_out.rename(out)
    finally:
        shutil.rmtree(partial_out, ignore_errors=True)
    return True


def _must_write(out: Path, parameters: dict, overwrite: bool) -> bool:
    """Whether ``out`` lacks the set; errors where it must not be touched."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return True
    marker = out / MARKER
    if not marker.is_file():
        raise ValueError(
            f'{out} exists and is no synthetic set (it has no {MARKER}); '
            'give an empty or a new folder')
    found = json.loads(marker.read_text())
    if found == parameters:
        return False
    if not overwrite:
        raise ValueError(
            f'{out} holds a synthetic set with other parameters, {found}, '
            f'not {parameters}; choose another folder, or replace it with '
            '--overwrite')
    return True
