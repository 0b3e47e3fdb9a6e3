"""A ``mmcv._ext`` for an mmcv that has none, or one that does not load.

``install()`` makes ``import mmcv._ext``, and with it ``mmcv.ops``, ``mmdet``
and ``mmdet3d``, work on mmcv-lite. Functions that we have are in the modules
of this package (``@provides``); every other function that mmcv 2.1 asks for
raises an error that names it, when it is called and not before.

mmcv is not imported by this package; what ``mmcv._ext`` is gets decided when
it is first imported, in this process and in processes spawned from it.
"""

import functools
import importlib
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType

from ._adapt import adapt
from ._finder import EXT, add_finder
from ._names import NAMES
from ._provided import PROVIDED, provides
from ._spawn import carry_to_children

__all__ = ['adapt', 'choose', 'install', 'provided', 'provides', 'status']


@functools.cache
def _log(text: str) -> None:
    """Log a text once; through mmengine where it is loaded anyway."""
    mmengine_logging = sys.modules.get('mmengine.logging')
    if hasattr(mmengine_logging, 'print_log'):
        mmengine_logging.print_log(text, logger='current')
    else:
        logging.getLogger('mmturbox').info(text)


def _mmcv_folders() -> list[str] | None:
    """mmcv's package folders, found without importing it."""
    if sys.modules.get('mmcv') is not None:
        return list(getattr(sys.modules['mmcv'], '__path__', []))
    spec = importlib.util.find_spec('mmcv')
    return None if spec is None else list(spec.submodule_search_locations)


@functools.cache
def _compiled(folders: tuple[str, ...]) -> tuple[ModuleType | None, str]:
    """mmcv's own extension, or why it cannot be used."""
    spec = PathFinder.find_spec(EXT, list(folders))
    if spec is None:
        return None, 'mmcv has no compiled _ext'
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        return None, f'the compiled _ext of mmcv does not load ({error})'
    return module, f'the compiled _ext of mmcv ({spec.origin}) works'


def _is_ours(module: ModuleType | None) -> bool:
    return getattr(module, '__dict__', {}).get('is_mmturbox', False)


def _stub(name: str, reason: str) -> Callable:

    def stub(*args, **kwargs):
        raise NotImplementedError(
            f'mmcv._ext.{name} was called, but {reason}, and mmturbox does '
            f'not provide {name}. It needs the full mmcv built for this '
            'torch (https://mmcv.readthedocs.io, "Build MMCV from source"); '
            '`python -m mmturbox.info` lists what mmturbox provides')

    stub.__name__ = stub.__qualname__ = name
    return stub


def provided() -> dict[str, Callable]:
    """mmcv's name in ``mmcv._ext`` -> our function."""
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith('_'):
            importlib.import_module(f'{__name__}.{info.name}')
    return dict(PROVIDED)


def _provider(compiled: ModuleType | None, reason: str) -> ModuleType:
    """A module with our functions; the rest is compiled or a stub."""

    def other(name: str):
        if compiled is not None and hasattr(compiled, name):
            return getattr(compiled, name)
        if name in NAMES:
            return _stub(name, reason)
        raise AttributeError(
            f'module {EXT!r} of mmturbox has no attribute {name!r}')

    module = ModuleType(EXT, 'mmcv._ext as provided by mmturbox')
    module.__dict__.update(provided(), __getattr__=other, is_mmturbox=True)
    return module


def choose(force: bool = False, quiet: bool = False) -> ModuleType:
    """The module that ``import mmcv._ext`` gives, see :func:`install`."""
    carry_to_children()
    compiled, reason = _compiled(tuple(_mmcv_folders()))
    if compiled is not None and not force:
        module, text = compiled, 'compiled'
    else:
        module = _provider(compiled, reason)
        text = f'mmturbox, {len(PROVIDED)} functions'
    if not quiet:
        _log(f'mmcv._ext: {text}; {reason}')
    return module


def install(force: bool = False) -> bool:
    """Provide ``mmcv._ext`` where mmcv has none or a broken one.

    Idempotent. Which implementation is used is logged once.

    Args:
        force: take our functions over a compiled extension that works;
            functions that we lack are still taken from it.

    Returns:
        Whether mmturbox provides ``mmcv._ext``: False if the compiled one
        works (and ``force`` is not set) or mmcv is not installed.
    """
    loaded = sys.modules.get(EXT)
    if _is_ours(loaded):
        return True
    folders = _mmcv_folders()
    if folders is None:
        _log('mmcv._ext: not provided, mmcv is not installed')
        return False
    compiled, reason = loaded, 'mmcv._ext is loaded already'
    if loaded is None:
        compiled, reason = _compiled(tuple(folders))
    if compiled is not None and not force:
        _log(f'mmcv._ext: compiled; {reason}')
        return False
    add_finder(force)
    carry_to_children()
    if sys.modules.get('mmcv') is not None:
        sys.modules.pop(EXT, None)
        ours = importlib.import_module(EXT)
        for module in list(sys.modules.values()):
            if loaded and getattr(module, 'ext_module', None) is loaded:
                module.ext_module = ours
    return True


def status() -> str:
    """One line about ``mmcv._ext``; imports neither mmcv nor mmdet3d."""
    folders = _mmcv_folders()
    if folders is None:
        return 'mmcv is not installed'
    loaded = sys.modules.get(EXT)
    compiled, reason = _compiled(tuple(folders))
    ours = _is_ours(loaded) if loaded else compiled is None
    if not ours:
        return f'compiled; {reason}'
    _provider(compiled, reason)
    rest = 'raise when called' if compiled is None else 'are mmcv\'s own'
    return (f'mmturbox; {reason}; {len(PROVIDED)} functions provided, '
            f'{len(NAMES - set(PROVIDED))} {rest}')
