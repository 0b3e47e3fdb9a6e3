"""Work in shards: on several processes, and resumed where it was killed.

Each shard is one file in a work folder beside the results. The folder's
marker says what the shards were made from; shards of anything else are thrown
away. The folder goes when the results are in place.
"""

import ctypes
import fcntl
import gc
import glob
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import IO

from .files import complete_file, explained
from .info_check import DataError

_MARKER = 'made_from.json'
# Of linux/prctl.h.
_PR_SET_PDEATHSIG = 1
Progress = Callable[[int, int], None]

# The running job; forked workers find it here with all it refers to.
_make: Callable[[int], None] | None = None


def default_workers() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


class WorkFolder:
    """Holds the shards of one result until it is complete.

    Args:
        path: the folder.
        made_from: JSON-able, equal where shards may be used again.
    """

    def __init__(self, path: Path, made_from: dict):
        self.path = path
        with explained(path):
            if _read_json(path / _MARKER) != made_from:
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir(parents=True)
                write_json(path / _MARKER, made_from)

    def remove(self) -> None:
        shutil.rmtree(self.path)


def run_shards(make: Callable[[int], None],
               results: Sequence[Path],
               sizes: Sequence[int],
               workers: int,
               progress: Progress = lambda done, total: None) -> None:
    """Call ``make(i)`` for each ``results[i]`` that is not there.

    Args:
        make: writes ``results[i]`` completely or not at all. Runs in forked
            processes, which share the memory of what is loaded here.
        results: one file a shard.
        sizes: units of work in each shard.
        workers: processes; the results do not depend on it.
        progress: called with units done and in all.

    Raises:
        DataError: if a process was killed.
        ValueError: unless there are workers.
    """
    if workers < 1:
        raise ValueError(f'--workers must be 1 or more, got {workers}')
    todo = [i for i, path in enumerate(results) if not path.exists()]
    total = sum(sizes)
    done = total - sum(sizes[i] for i in todo)
    progress(done, total)
    # The collector would walk through all that is loaded again and again, and
    # in forked processes copy it by touching it.
    gc.freeze()
    try:
        for i in _serial(make, todo) if workers == 1 else _forked(
                make, todo, workers):
            done += sizes[i]
            progress(done, total)
    finally:
        gc.unfreeze()


def _serial(make: Callable[[int], None], todo: list[int]) -> Iterator[int]:
    for i in todo:
        make(i)
        yield i


def _forked(make: Callable[[int], None], todo: list[int],
            workers: int) -> Iterator[int]:
    """Yield the shards of ``todo`` as they are made."""
    global _make
    if not todo:
        return
    _make = make
    pool = ProcessPoolExecutor(
        min(workers, len(todo)),
        get_context('fork'),
        initializer=_follow_parent,
        initargs=(os.getpid(), ))
    try:
        left = {pool.submit(_call, i) for i in todo}
        while left:
            ready, left = wait(left, return_when=FIRST_COMPLETED)
            for future in ready:
                yield future.result()
    except BrokenProcessPool as error:
        raise DataError(
            'a worker process was killed, most often for want of memory. Run '
            'the same command again with fewer --workers') from error
    finally:
        pool.shutdown(cancel_futures=True)
        _make = None


def _follow_parent(parent: int) -> None:
    """End with it, at once and without a traceback when stopped by Ctrl-C.

    Else workers of a process that was killed would wait for ever, holding all
    that is loaded.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _call(i: int) -> int:
    _make(i)
    return i


def cut(count: int, size: int) -> list[range]:
    """``range(count)`` in pieces of at most ``size``, at least one piece."""
    return [
        range(i, min(i + size, count)) for i in range(0, max(count, 1), size)
    ]


def write_json(path: Path, data: dict) -> None:
    with complete_file(path, 'w') as file:
        json.dump(data, file, indent=1)


def _read_json(path: Path) -> dict | None:
    """None where there is no such file or it is no JSON."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None


def lock_file(file: IO, path: Path) -> bool:
    """Lock a file that is removed before it is unlocked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


class Marker:
    """A file beside the results that says what they were made from.

    Args:
        path: of the marker.
        made_from: JSON-able parameters and fingerprints.
        results: the files or folders it stands for.

    Attributes:
        work: where the shards of the results belong.
    """

    def __init__(self, path: Path, made_from: dict, results: Sequence[Path]):
        self.path = path
        self.made_from = made_from
        self.results = list(results)
        self.work = path.with_name(f'.{path.stem}.partial')

    @contextmanager
    def alone(self, overwrite: bool) -> Iterator[bool]:
        """Keep other runs from the results, and tidy up after killed ones.

        Gives :meth:`is_done`. Nothing is written where there is nothing to
        do, since finished data may be read-only.

        Raises:
            DataError: if another run is at it, or as :meth:`is_done`.
        """
        if self.is_done(True) and not self._leftovers():
            yield True
            return
        lock = self.work.with_suffix('.lock')
        with explained(lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = open(lock, 'w')
        with file:
            if not lock_file(file, lock):
                raise DataError(
                    f'another run is writing {self.results[0]}; wait for it '
                    'or use another --prefix or --out')
            try:
                done = self.is_done(overwrite)
                with explained(lock):
                    for path in self._leftovers():
                        if path != self.work:
                            path.unlink()
                        elif done:
                            shutil.rmtree(path)
                yield done
            finally:
                lock.unlink(missing_ok=True)

    def _leftovers(self) -> list[Path]:
        """Parts of writes that were killed, and the work folder."""
        parts = [
            part for path in (self.path, *self.results) for part in
            path.parent.glob(f'{glob.escape(path.name)}.partial-*')
        ]
        return parts + [self.work] * self.work.exists()

    def is_done(self, overwrite: bool) -> bool:
        """Whether all results are there and made from this.

        Raises:
            DataError: if there are results of something else and they must
                not be overwritten.
        """
        there = [path for path in self.results if path.exists()]
        found = _read_json(self.path)
        if found == self.made_from:
            return len(there) == len(self.results)
        if there and not overwrite:
            differs = 'it does not say how it was made' if found is None else (
                'was made with other ' + ', '.join(
                    sorted(k for k in {*found, *self.made_from}
                           if found.get(k) != self.made_from.get(k))))
            raise DataError(
                f'{there[0]} is already there and {differs}; use another '
                '--prefix or --out, or --overwrite to replace it')
        return False

    def begin(self) -> None:
        """Call when the results are ready to be put under their names.

        Results of something else go first, so that the marker never speaks
        of files that it does not describe.
        """
        with explained(self.path):
            if _read_json(self.path) != self.made_from:
                for path in self.results:
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink(missing_ok=True)
            write_json(self.path, self.made_from)
