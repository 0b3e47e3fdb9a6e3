"""Fixtures that keep one test from changing the next.

``from mmturbox.testing.leaks import *`` in a ``conftest.py`` turns them on.
"""

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

__all__ = ['restore_environment', 'no_processes_left']

# Set by libraries at import; harmless and the same in every process.
_LIBRARY_PREFIXES = ('KMP_', 'QT_', 'CUDA_MODULE_LOADING', 'TORCHINDUCTOR_',
                     'PYTEST_', 'MPLBACKEND', 'CV_', 'OPENCV_')


@pytest.fixture(autouse=True)
def restore_environment() -> Iterator[None]:
    """Environment variables are given back as they were."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        if not name.startswith(_LIBRARY_PREFIXES):
            del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    """A test fails that leaves a process group, child or thread behind."""
    threads = set(threading.enumerate())
    children = set(multiprocessing.active_children())
    group = _process_group()
    yield
    leaks = []
    if group is None and _process_group() is not None:
        _process_group().destroy_process_group()
        leaks.append('the default process group')
    for child in set(multiprocessing.active_children()) - children:
        child.terminate()
        child.join(5)
        leaks.append(f'child process {child.name}')
    for thread in set(threading.enumerate()) - threads:
        if not thread.daemon:
            thread.join(5)
            if thread.is_alive():
                leaks.append(f'thread {thread.name}')
    if leaks:
        pytest.fail(f'the test leaves behind: {", ".join(leaks)}')


def _process_group() -> ModuleType | None:
    """``torch.distributed`` while its default group exists, else None."""
    # Not imported here: most tests do not pay for torch.distributed.
    dist = sys.modules.get('torch.distributed')
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist
