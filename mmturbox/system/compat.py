"""The layer that makes stock mmengine and mmdet3d run here.

Active whenever mmturbox is, also under ``MMTURBOX=0``. It makes stock run; it
makes nothing faster. Each part replaces the one function that fails, and only
where it fails:

- ``mmcv._ext`` from our operators where mmcv has none that loads;
- gloo process groups and DDP where there is no accelerator;
- whole checkpoints from local files with torch >= 2.6;
- ``package::file`` config bases without ``pkg_resources``.
"""

import multiprocessing

from . import checkpoints, config_bases, cpu_distributed
from .launch import is_main_rank
from .patches import Patches

_patches = Patches()
_done: list[str] | None = None


def install() -> list[str]:
    """Install all parts that are needed here; idempotent.

    Returns:
        What was done, one phrase a part.
    """
    global _done
    if _done is None:
        from mmturbox.ops import mmcv_ext
        parts = [
            'mmcv._ext from mmturbox' if mmcv_ext.install() else None,
            cpu_distributed.install(_patches),
            checkpoints.install(_patches),
            config_bases.install(_patches)
        ]
        _done = [part for part in parts if part]
        # Spawned data workers and other ranks would only repeat the line.
        if is_main_rank() and multiprocessing.parent_process() is None:
            print(f'[mmturbox] compat: {"; ".join(_done) or "none needed"}')
    return list(_done)


def undo() -> None:
    """Take the replaced functions of mmengine back (not the provider).

    ``mmcv._ext`` stays: modules that were imported over it hold references.
    """
    global _done
    _patches.undo()
    _done = None
