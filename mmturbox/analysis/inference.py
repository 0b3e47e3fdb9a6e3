"""Inference of stock against turbo: latency, throughput, same detections."""

import contextlib
import copy
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .batches import compare_nested, tensors
from .bench import ROUNDS
from .counting import Counter
from .report import Row, row
from .turns import Turns, synchronize

CLOSE = 1e-4
"""Relative difference up to which detections of a ``close`` plan count as
the same."""


class TestDriver(Turns):
    """One test run, a batch at a time.

    Attributes:
        data_times, latencies: seconds of each batch since the last clearing.
    """
    __test__ = False  # not for pytest

    def __init__(self, cfg: Any, turbo: bool, work_dir: str):
        super().__init__(cfg, turbo, work_dir)
        self.data_times: list[float] = []
        self.latencies: list[float] = []
        self._iterator: Iterator | None = None
        with self.active():
            runner = self.runner
            if runner._test_loop is None:
                raise ValueError('the config has no test_dataloader, '
                                 'test_cfg and test_evaluator')
            runner._test_loop = runner.build_test_loop(runner._test_loop)
            runner.load_or_resume()
            runner.model.eval()
            self._start()

    def _start(self) -> None:
        with self._adopt_workers():
            self._iterator = iter(self.runner.test_loop.dataloader)

    def next(self, counter: Counter | None = None) -> Any:
        """Predict the next batch; over the end, from the start again."""
        begin = time.perf_counter()
        batch = next(self._iterator, None)
        if batch is None:
            self._start()
            begin = time.perf_counter()
            batch = next(self._iterator)
        self.data_times.append(time.perf_counter() - begin)
        if counter is not None:
            counter.mark_host(tensors(batch))
        begin = time.perf_counter()
        with counter or contextlib.nullcontext(), torch.no_grad():
            outputs = self.runner.model.test_step(batch)
        synchronize()
        self.latencies.append(time.perf_counter() - begin)
        return outputs

    def clear(self) -> None:
        self.data_times, self.latencies = [], []

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        if hasattr(self._iterator, '_shutdown_workers'):
            self._iterator._shutdown_workers()
        super().close()


def same_detections(want: Any, got: Any, parity: str) -> tuple[bool, float]:
    """(whether they are the same, largest relative gap)."""
    gap = max((g for _, g in compare_nested(want, got)), default=0.)
    return gap <= (0. if parity == 'bitwise' else CLOSE), gap


def benchmark_test(cfg: Any,
                   work_dir: str,
                   batches: int = 20,
                   warmup: int = 3) -> tuple[list[Row], dict[str, Any]]:
    """Interleaved inference of stock and turbo on the same batches.

    Args:
        cfg: the config; ``load_from`` names the weights (without, both have
            the same initial ones).
        work_dir: the folder for logs.
        batches: timed batches of each.

    Returns:
        The rows, and ``same_detections`` with the largest gap.
    """
    with contextlib.ExitStack() as stack:
        drivers = []
        for turbo in (False, True):
            folder = os.path.join(work_dir, 'turbo' if turbo else 'stock')
            drivers.append(TestDriver(cfg, turbo, folder))
            stack.callback(drivers[-1].close)
        stock, turbo = drivers
        turbo.model.load_state_dict(stock.model.state_dict())
        plan = getattr(turbo.runner, 'plan', None)
        parity = plan.parity if plan is not None else 'bitwise'
        same, worst = True, 0.
        for _ in range(warmup):
            outputs = []
            for driver in drivers:
                with driver.active():
                    outputs.append(copy.deepcopy(driver.next()))
            equal, gap = same_detections(*outputs, parity)
            same, worst = same and equal, max(worst, gap)
        for driver in drivers:
            driver.clear()
        block = max(1, batches // 2)
        for name in ROUNDS:
            driver = stock if name == 'stock' else turbo
            with driver.active():
                for _ in range(block):
                    driver.next()
        rows = _rows(drivers)
        counters = []
        for driver in drivers:
            counter = Counter(driver.accelerator)
            with driver.active():
                driver.next(counter)
            counters.append(counter)
        for name, kind in (('host syncs', 'sync'), ('launches', 'launch'),
                           ('uploads', 'upload')):
            rows.append(
                row(name, *(float(c.total(kind)) for c in counters),
                    'a batch'))
    return rows, dict(same_detections=same, detection_gap=worst)


def _rows(drivers: list[TestDriver]) -> list[Row]:
    rows = []
    for name, quantile in (('latency p50', .5), ('latency p99', .99)):
        rows.append(
            row(name, *(1e3 * float(np.quantile(d.latencies, quantile))
                        for d in drivers), 'ms'))
    speeds = []
    for driver in drivers:
        size = driver.runner.test_loop.dataloader.batch_size
        times = np.add(driver.data_times, driver.latencies)
        speeds.append(size / float(np.median(times)))
    rows.append(row('samples per second', *speeds, 'samples/s'))
    return rows
