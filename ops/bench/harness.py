"""Cases of the operator benchmark, and how they are timed."""

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One row: the stock way and ours, on the same input.

    Attributes:
        name: the row, e.g. ``'MSDeformAttn forward'``.
        stock, turbo: run it once, without arguments. With a unit other than
            'ms' they return the figure instead of being timed.
        target: the ratio stock / turbo to reach.
        check: compares results before anything is timed; raises where they
            differ.
        unit: of the figures.
    """
    name: str
    stock: Callable[[], Any]
    turbo: Callable[[], Any]
    target: float | None = None
    check: Callable[[], None] | None = None
    unit: str = 'ms'


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be measured here, and why."""
    name: str
    reason: str


def baselines(family: str) -> ctypes.CDLL:
    """``baselines_<family>.cpp``, compiled for this machine."""
    folder = tempfile.mkdtemp(prefix='mmturbox_bench_')
    library = Path(folder) / f'{family}.so'
    subprocess.run([
        'g++', '-O3', '-std=c++17', '-shared', '-fPIC',
        str(HERE / f'baselines_{family}.cpp'), '-o',
        str(library)
    ], check=True)
    return ctypes.CDLL(str(library))


def _once(run: Callable[[], Any], unit: str, wait: Callable) -> float:
    wait()
    start = time.perf_counter()
    value = run()
    wait()
    spent = (time.perf_counter() - start) * 1e3
    return spent if unit == 'ms' else float(value)


def rounds(case: Case, wait: Callable,
           seconds: float) -> Iterator[tuple[float, float]]:
    """Stock and turbo in turn, at least five times, for ``seconds``."""
    _once(case.stock, case.unit, wait)
    _once(case.turbo, case.unit, wait)
    begin, done = time.perf_counter(), 0
    while done < 5 or (time.perf_counter() - begin < seconds and done < 200):
        yield (_once(case.stock, case.unit, wait),
               _once(case.turbo, case.unit, wait))
        done += 1


def measure(case: Case,
            wait: Callable = lambda: None,
            seconds: float = 2.0) -> tuple[float, float]:
    """Medians of stock and turbo, once ``check`` has passed."""
    if case.check is not None:
        case.check()
    pairs = list(rounds(case, wait, seconds))
    return (median(pair[0] for pair in pairs),
            median(pair[1] for pair in pairs))
