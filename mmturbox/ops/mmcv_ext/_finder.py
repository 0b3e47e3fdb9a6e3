"""The import hook behind ``mmcv._ext``; stdlib only until it is asked.

This file is also run on its own, by path, at the very start of spawned
processes (see ``_spawn.py``), before their ``sys.path`` is restored. So it
imports nothing of ours at the top and knows its own root folder.
"""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

EXT = 'mmcv._ext'


class ExtFinder:
    """Decides what ``import mmcv._ext`` gives, at the time it is imported.

    Args:
        force: take our functions although a compiled extension works.
    """

    is_mmturbox = True

    def __init__(self, force: bool = False) -> None:
        self.force = force

    def find_spec(self, fullname, path=None, target=None):
        if fullname != EXT:
            return None
        return ModuleSpec(fullname, self, origin='mmturbox')

    def create_module(self, spec):
        try:
            from mmturbox.ops.mmcv_ext import choose
        except ModuleNotFoundError as error:
            if not (error.name or '').startswith('mmturbox'):
                raise
            sys.path.append(str(Path(__file__).resolve().parents[3]))
            from mmturbox.ops.mmcv_ext import choose
        return choose(self.force)

    def exec_module(self, module):
        """The module comes complete from :meth:`create_module`."""


def add_finder(force: bool = False) -> None:
    """Put one finder first on ``sys.meta_path``; a second call updates it."""
    for finder in sys.meta_path:
        if getattr(finder, 'is_mmturbox', False):
            finder.force = force
            return
    sys.meta_path.insert(0, ExtFinder(force))


if __name__ in ('mmturbox_spawned', 'mmturbox_spawned_force'):
    add_finder(force=__name__.endswith('_force'))
