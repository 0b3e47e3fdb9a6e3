"""Code in an interpreter of its own, with an mmcv of a chosen kind."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def run(code: str, *folders: Path, **environment: str) -> str:
    """The output of ``code`` in a fresh interpreter, which must succeed.

    Args:
        folders: searched for packages before everything else.
        environment: variables to set.
    """
    path = os.pathsep.join(
        map(str, [*folders, os.environ.get('PYTHONPATH', '')]))
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code],
        env={
            **os.environ,
            **environment, 'PYTHONPATH': path
        },
        capture_output=True,
        text=True,
        timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def mmcv_with(folder: Path, name: str, content: bytes) -> Path:
    """``folder``, with a package mmcv that is the installed one without its
    ``_ext``, plus one file."""
    package = folder / 'mmcv'
    package.mkdir()
    for entry in Path(find_spec('mmcv').origin).parent.iterdir():
        if not entry.name.startswith('_ext'):
            (package / entry.name).symlink_to(entry)
    (package / name).write_bytes(content)
    return folder
