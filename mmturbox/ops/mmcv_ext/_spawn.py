"""Carry the import hook into spawned processes.

A spawned (or forkserver) process starts without our hook, and the first
thing it does is to import the main script and to unpickle a dataset; with
mmdet3d both import ``mmcv.ops``. What such a process reads before all that
is the dict of ``multiprocessing.spawn.get_preparation_data``. One more entry
of that dict, whose unpickling adds the hook, reaches every start: data
workers, ``torch.multiprocessing.spawn`` and plain ``Process`` objects, with
no environment variable and no change to user code.
"""

import functools
import multiprocessing.spawn
import runpy
import sys
from pathlib import Path

KEY = 'mmturbox_mmcv_ext'
_FINDER_FILE = Path(__file__).with_name('_finder.py')


class _AddFinder:
    """Pickles as "run _finder.py by path", so that it needs no import."""

    def __init__(self, force: bool) -> None:
        self.name = 'mmturbox_spawned' + ('_force' if force else '')

    def __reduce__(self):
        return runpy.run_path, (str(_FINDER_FILE), None, self.name)


def _force() -> bool | None:
    for finder in sys.meta_path:
        if getattr(finder, 'is_mmturbox', False):
            return finder.force
    return None


def carry_to_children() -> None:
    """Wrap ``get_preparation_data`` once."""
    stock = multiprocessing.spawn.get_preparation_data
    if getattr(stock, 'is_mmturbox', False):
        return

    @functools.wraps(stock)
    def get_preparation_data(name):
        data = stock(name)
        force = _force()
        if force is not None:
            data[KEY] = _AddFinder(force)
        return data

    get_preparation_data.is_mmturbox = True
    multiprocessing.spawn.get_preparation_data = get_preparation_data
