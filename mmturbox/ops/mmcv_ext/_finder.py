"""The import hook behind ``mmcv._ext``; stdlib only until it is asked.

This file is also run on its own, by path, at the very start of spawned
processes (see ``_spawn.py``), before their ``sys.path`` is restored. So it
imports nothing of ours at the top and knows its own root folder.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

EXT = 'mmcv._ext'
# Modules whose Python code fails before it calls _ext, see _adapt.py.
ADAPTED = ('mmcv.ops.carafe', 'mmcv.ops.furthest_point_sample',
           'mmcv.ops.iou3d', 'mmcv.ops.knn', 'mmcv.ops.nms',
           'mmcv.ops.points_in_boxes', 'mmcv.ops.scatter_points',
           'mmcv.ops.sparse_ops')


def _package():
    try:
        from mmturbox.ops import mmcv_ext
    except ModuleNotFoundError as error:
        if not (error.name or '').startswith('mmturbox'):
            raise
        sys.path.append(str(Path(__file__).resolve().parents[3]))
        from mmturbox.ops import mmcv_ext
    return mmcv_ext


class _AdaptingLoader:
    """Runs the module's own loader, then ``mmcv_ext.adapt``."""

    def __init__(self, spec):
        self.loader = spec.loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        _package().adapt(module)


class ExtFinder:
    """Decides what ``import mmcv._ext`` gives, at the time it is imported.

    Args:
        force: take our functions although a compiled extension works.
        quiet: do not log the choice; for data workers.
    """

    is_mmturbox = True

    def __init__(self, force: bool = False, quiet: bool = False) -> None:
        self.force = force
        self.quiet = quiet

    def find_spec(self, fullname, path=None, target=None):
        if fullname == EXT:
            return ModuleSpec(fullname, self, origin='mmturbox')
        if fullname not in ADAPTED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _AdaptingLoader(spec)
        return spec

    def create_module(self, spec):
        return _package().choose(self.force, self.quiet)

    def exec_module(self, module):
        """The module comes complete from :meth:`create_module`."""


def add_finder(force: bool = False, quiet: bool = False) -> None:
    """Put one finder first on ``sys.meta_path``; a second call updates it."""
    for finder in sys.meta_path:
        if getattr(finder, 'is_mmturbox', False):
            finder.force = force
            return
    sys.meta_path.insert(0, ExtFinder(force, quiet))


if __name__ in ('mmturbox_spawned', 'mmturbox_spawned_force'):
    add_finder(force=__name__.endswith('_force'), quiet=True)
