"""The three edits a pass may ask for, and the rules for combining them.

An edit names a place of the *original* config by its path. Edits of all
passes are collected first and applied together:

- ``Set`` of the same value on the same path merge; of different values, or
  above or below another set, they conflict.
- ``Splice`` ranges of one list must not overlap; insertions at one point are
  kept in the order of the passes. A set inside a replaced range conflicts.
- ``Wrap`` commutes with edits below its path and conflicts with another wrap
  or a set of the same path.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from mmengine.config import Config

from mmturbox.errors import ConfigError

Path = tuple[str | int, ...]


class EditConflict(ConfigError):
    """Two passes claim one place of the config."""


def as_path(path: str | Sequence[str | int]) -> Path:
    """``'a.0.b'`` -> ``('a', 0, 'b')``; a tuple allows dots inside keys."""
    parts = path.split('.') if isinstance(path, str) else path
    return tuple(
        int(p) if isinstance(p, str) and p.isdigit() else p for p in parts)


def show_path(path: Path) -> str:
    return '.'.join(str(p) for p in path)


def as_dict(cfg: Any) -> Any:
    """The ConfigDict inside a Config; anything else as it is."""
    return cfg._cfg_dict if isinstance(cfg, Config) else cfg


def lookup(node: Any, path: Path, default: Any = None) -> Any:
    """The value at ``path``, or ``default`` where a step is missing."""
    node = as_dict(node)
    for step in path:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return default
    return node


@dataclass(frozen=True)
class Set:
    """Give the leaf or subtree at ``path`` the value ``value``."""
    path: Path
    value: Any

    def __init__(self, path: str | Sequence[str | int], value: Any):
        object.__setattr__(self, 'path', as_path(path))
        object.__setattr__(self, 'value', value)


@dataclass(frozen=True)
class Wrap:
    """Put ``dict(type=type, <key>=old, **kwargs)`` around ``path``."""
    path: Path
    type: str
    key: str = 'dataset'
    kwargs: dict = field(default_factory=dict)

    def __init__(self,
                 path: str | Sequence[str | int],
                 type: str,
                 key: str = 'dataset',
                 **kwargs):
        object.__setattr__(self, 'path', as_path(path))
        object.__setattr__(self, 'type', type)
        object.__setattr__(self, 'key', key)
        object.__setattr__(self, 'kwargs', kwargs)


@dataclass(frozen=True)
class Splice:
    """Replace ``list[start:stop]`` at ``path`` by the items of ``new``.

    ``start == stop`` inserts; a missing list counts as empty.
    """
    path: Path
    start: int
    stop: int
    new: tuple

    def __init__(self, path: str | Sequence[str | int], start: int, stop: int,
                 new: Iterable):
        if not 0 <= start <= stop:
            raise ValueError(f'bad splice range [{start}, {stop})')
        object.__setattr__(self, 'path', as_path(path))
        object.__setattr__(self, 'start', start)
        object.__setattr__(self, 'stop', stop)
        object.__setattr__(self, 'new', tuple(new))


Edit = Set | Wrap | Splice


def is_under(path: Path, root: Path) -> bool:
    return path[:len(root)] == root


def _clash(a: Edit, b: Edit) -> str | None:
    """Why ``a`` and ``b`` cannot both be applied, or None."""
    if a == b and not isinstance(a, Splice):
        return None
    if isinstance(a, Set) and isinstance(b, Set):
        if a.path == b.path:
            return f'set to {a.value!r} and to {b.value!r}'
        if is_under(a.path, b.path) or is_under(b.path, a.path):
            return 'one set lies inside the other'
        return None
    if isinstance(a, Wrap) and isinstance(b, Wrap):
        return 'wrapped twice' if a.path == b.path else None
    if isinstance(a, Splice) and isinstance(b, Splice):
        if a.path != b.path:
            return _inside(a, b) or _inside(b, a)
        if a.start < b.stop and b.start < a.stop:
            return 'overlapping list ranges'
        return None
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Set) and is_under(other.path, one.path):
            return f'set, and changed by a {type(other).__name__.lower()}'
        if isinstance(one, Splice) and _inside(one, other):
            return _inside(one, other)
    return None


def _inside(splice: Splice, other: Edit) -> str | None:
    """A path that runs through a replaced item of ``splice``."""
    depth = len(splice.path)
    if is_under(other.path, splice.path) and len(other.path) > depth:
        index = other.path[depth]
        if splice.start <= index < splice.stop:
            return 'inside a replaced list range'
    return None


def check_conflicts(claims: Sequence[tuple[str, Edit]]) -> None:
    """Raise :class:`EditConflict` naming both passes and the place."""
    for i, (name_a, a) in enumerate(claims):
        for name_b, b in claims[i + 1:]:
            reason = _clash(a, b)
            if reason:
                raise EditConflict(
                    f'passes {name_a!r} and {name_b!r} both claim '
                    f'{show_path(a.path)} / {show_path(b.path)}: {reason}. '
                    f'Turn one off, e.g. turbo = dict({name_b}=False)')


def _parent(cfg: Any, path: Path) -> Any:
    node = cfg
    for step in path[:-1]:
        if isinstance(node, dict) and node.get(step) is None:
            node[step] = {}
        node = node[step]
    return node


def apply_edits(cfg: Any, edits: Iterable[Edit]) -> None:
    """Apply checked edits to ``cfg`` in place.

    Sets go first, then wraps, the deepest first, then splices from the right,
    so that every path still means what it meant in the original.
    """
    cfg, edits = as_dict(cfg), list(edits)

    def put(edit: Edit, value: Any) -> None:
        # ConfigDict turns nested dicts into its own kind only when built.
        value = type(cfg)(value=deepcopy(value))['value']
        _parent(cfg, edit.path)[edit.path[-1]] = value

    for edit in (e for e in edits if isinstance(e, Set)):
        put(edit, edit.value)
    wraps = {e.path: e for e in edits if isinstance(e, Wrap)}
    for path in sorted(wraps, key=len, reverse=True):
        edit, old = wraps[path], lookup(cfg, path)
        put(edit, {'type': edit.type, **edit.kwargs, edit.key: old})
    splices = [e for e in reversed(edits) if isinstance(e, Splice)]
    # From the right; a replacement goes before an insertion at its start, and
    # of insertions at one point the last one, which ends up behind.
    for edit in sorted(
            splices, key=lambda e: (-len(e.path), -e.start, -e.stop)):
        items = list(lookup(cfg, edit.path) or [])
        items[edit.start:edit.stop] = edit.new
        put(edit, items)
