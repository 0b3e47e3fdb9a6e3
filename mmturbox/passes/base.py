"""What a pass is. One acceleration, one small file, one test.

A pass looks at a config and an :class:`Environment` and returns the edits it
would make, or declines with its reason. It never changes anything itself.
"""

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from .edits import Edit, Set, Splice, Wrap, as_dict, lookup, show_path

SIDES = ('system', 'data', 'model')
PARITIES = ('bitwise', 'close', 'statistical')

__all__ = [
    'ConfigPass', 'Declined', 'Environment', 'Set', 'Splice', 'Wrap',
    'find_types', 'lookup', 'type_is'
]


@dataclass(frozen=True)
class Declined:
    """A pass does not apply here; ``reason`` completes 'declined: ...'."""
    reason: str


@dataclass(frozen=True)
class Environment:
    """What the plan may depend on besides the config.

    Attributes:
        device: ``'cpu'``, ``'cuda'``, ``'npu'``, ... of ``mmengine.device``.
        world_size, local_world_size: ranks in all and on this node.
        cores: cores of this process' affinity mask.
        memory, shm: bytes free in RAM and in ``/dev/shm``.
        level: ``'same'`` or ``'max'``, from ``turbo.level``.
    """
    device: str = 'cpu'
    world_size: int = 1
    local_world_size: int = 1
    cores: int = 1
    memory: int = 0
    shm: int = 0
    level: str = 'same'

    @classmethod
    def detect(cls, cfg: Any) -> 'Environment':
        import psutil
        from mmengine.device import get_device
        distributed = cfg.get('launcher', 'none') != 'none'
        world, local = 1, 1
        if distributed:
            from mmengine.dist import get_world_size
            world = get_world_size()
            local = int(os.environ.get('LOCAL_WORLD_SIZE', world))
        try:
            stat = os.statvfs('/dev/shm')
            shm = stat.f_bavail * stat.f_frsize
        except OSError:
            shm = 0
        return cls(
            device=get_device(),
            world_size=world,
            local_world_size=local,
            cores=len(os.sched_getaffinity(0)),
            memory=psutil.virtual_memory().available,
            shm=shm,
            level=(cfg.get('turbo') or {}).get('level', 'same'))


class ConfigPass:
    """Base class of all passes.

    Class attributes:
        name: what users type, snake_case.
        side: ``'system'``, ``'data'`` or ``'model'``.
        parity: ``'bitwise'``, ``'close'`` or ``'statistical'``.
        changes: glob patterns of the config paths it may touch; ``*`` also
            matches dots.
        needs: ``'cuda'``, ``'distributed'``, ``'module:<importable>'``;
            the driver declines with the reason where one is not met.
        options: option name -> default value; the default's type is the
            type an option must have (None allows any).
    """
    name: ClassVar[str]
    side: ClassVar[str]
    parity: ClassVar[str]
    changes: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[dict[str, Any]] = {}

    def plan(self, cfg: Any, env: Environment,
             **options) -> list[Edit] | Declined:
        """The edits for ``cfg`` (not to be modified), or why there are none.

        A config that already holds the edits gives :class:`Declined` or an
        empty list: planning twice changes nothing.
        """
        raise NotImplementedError

    def allows(self, edit: Edit) -> bool:
        return any(
            fnmatch.fnmatchcase(show_path(edit.path), p) for p in self.changes)


def type_is(node: Any, *names: str) -> bool:
    """Whether ``node['type']`` is one of the classes ``names``.

    ``type`` may be ``'X'``, ``'scope.X'`` or the class X itself; a name given
    as ``'mmdet.X'`` only matches that scope (or package), ``'X'`` any scope
    but ``mmturbox``.
    """
    if not isinstance(node, dict) or node.get('type') is None:
        return False
    kind = node['type']
    if isinstance(kind, str):
        scope, _, bare = kind.rpartition('.')
        scope = scope.split('.')[0]
    else:
        bare = getattr(kind, '__name__', '')
        scope = getattr(kind, '__module__', '').split('.')[0]
    if scope == 'mmturbox':
        return False
    for name in names:
        want_scope, _, want = name.rpartition('.')
        if bare == want and (not want_scope or scope in ('', want_scope)):
            return True
    return False


def find_types(cfg: Any, *names: str, under: str = '') -> Iterator[tuple]:
    """Paths of all nodes below ``under`` whose type is one of ``names``."""

    def walk(node, path):
        if type_is(node, *names):
            yield path
        if isinstance(node, dict):
            items = node.items()
        elif isinstance(node, (list, tuple)):
            items = enumerate(node)
        else:
            return
        for key, child in items:
            yield from walk(child, (*path, key))

    start = tuple(under.split('.')) if under else ()
    yield from walk(as_dict(lookup(cfg, start)), start)
