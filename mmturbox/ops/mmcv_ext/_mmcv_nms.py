"""What mmcv's Python around the suppression operators gets wrong.

``mmcv.ops.batched_nms`` takes the maximum of no boxes and dies,
``mmcv.ops.nms_rotated`` answers no boxes with None for their indices, and
``nms3d`` and ``nms3d_normal`` order equal scores by a sort that is not
stable. None of this reaches ``mmcv._ext``, so these functions are wrapped or
replaced as their modules are imported, and only where ``_ext`` is ours.
"""

import functools
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType

import torch


def _when_empty(name: str, function: Callable) -> Callable:
    """Answer for zero boxes, leave the rest to ``function``.

    Args:
        name: of the function's first parameter, the boxes.
        function: returns boxes with a score column, and their indices.
    """

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        boxes = args[0] if args else kwargs[name]
        if boxes.shape[0]:
            return function(*args, **kwargs)
        return (boxes.new_empty((0, boxes.shape[-1] + 1)),
                boxes.new_empty((0, ), dtype=torch.int64))

    return wrapper


def _fix_nms(module: ModuleType) -> None:
    module.batched_nms = _when_empty('boxes', module.batched_nms)
    module.nms_rotated = _when_empty('dets', module.nms_rotated)


def _fix_iou3d(module: ModuleType) -> None:
    from mmturbox.ops import nms3d, nms3d_normal
    module.nms3d, module.nms3d_normal = nms3d, nms3d_normal


_FIXES = {'mmcv.ops.nms': _fix_nms, 'mmcv.ops.iou3d': _fix_iou3d}


class _Watcher:
    """Runs a fix right after the module that it is for."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname not in _FIXES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            if getattr(module.ext_module, 'is_mmturbox', False):
                _FIXES[fullname](module)

        spec.loader.exec_module = exec_module
        return spec


def watch() -> None:
    """Fix those modules when they are imported; idempotent."""
    if _Watcher not in sys.meta_path:
        sys.meta_path.insert(0, _Watcher)
