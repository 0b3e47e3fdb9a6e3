"""Stock against turbo: times in one interleaved run, and counts.

Rounds go stock, turbo, turbo, stock (ABBA), so that a drift of the machine's
speed falls on both. In a block of a round one run alone is at work, its data
workers too; its first iteration is not timed, since it finds the caches of
the other run.
"""

import copy
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .batches import leaves, tensors
from .counting import Counter
from .report import Row, row
from .stepping import StepDriver

ROUNDS = ('stock', 'turbo', 'turbo', 'stock')


@dataclass
class Timing:
    """Seconds an iteration, the mean of each timed block of one run.

    Workers deliver in bursts, one batch a worker: the median iteration would
    hide the waits, so the medians are taken over the means of blocks.

    Attributes:
        data: waiting for the batch.
        step: hooks, forward, backward and optimizer step.
        bare: ``step`` on one and the same batch, so without any data.
    """
    data: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    @property
    def iteration(self) -> list[float]:
        return [d + s for d, s in zip(self.data, self.step, strict=True)]


def num_boxes(batch: Any) -> int:
    """Labelled objects of a training batch (0 where there are no labels)."""
    paths = defaultdict(int)
    for path, value in leaves(batch):
        name = path.rpartition('.')[2]
        if 'label' in name or name == 'bboxes':
            paths[name] += len(value) if getattr(value, 'ndim', 0) else 0
    return max(paths.values(), default=0)


def host_tensors(driver: StepDriver, batch: Any) -> list:
    """Tensors of a run that live on the host on a GPU machine too: the
    loaded batch, and the step counters of plain optimizers."""
    found = tensors(batch)
    for optimizer in driver.optimizers:
        for group in optimizer.param_groups:
            if group.get('fused') or group.get('capturable'):
                continue
            states = (optimizer.state.get(p, {}) for p in group['params'])
            found += tensors([s['step'] for s in states if 'step' in s])
    return found


def count_iteration(driver: StepDriver) -> tuple[Counter, int]:
    """Counts of the next iteration that does not log, and its boxes.

    Where every iteration logs, the next one is counted.
    """
    for _ in range(100):
        if not driver.logs_next():
            break
        driver.next()
    with driver.active():
        batch = driver.fetch()
        boxes = num_boxes(batch)
        counter = Counter(driver.accelerator)
        counter.mark_host(host_tensors(driver, batch))
        with counter:
            driver.step(batch)
    return counter, boxes


def _block(driver: StepDriver, timing: Timing, iterations: int) -> None:
    times = []
    with driver.active():
        for _ in range(iterations + 1):
            driver.step(driver.fetch())
            times.append((driver.data_time, driver.step_time))
    data, step = map(statistics.mean, zip(*times[1:], strict=True))
    timing.data.append(data)
    timing.step.append(step)


def _bare_block(driver: StepDriver, timing: Timing, batch: Any,
                iterations: int) -> None:
    times = []
    with driver.active():
        for _ in range(iterations + 1):
            # A preprocessor may write into the batch.
            driver.step(copy.deepcopy(batch))
            times.append(driver.step_time)
    timing.bare.append(statistics.mean(times[1:]))


def time_runs(drivers: tuple[StepDriver, StepDriver],
              rounds: int = 3,
              iterations: int = 4,
              warmup: int = 3,
              progress: Callable[[str], None] = print) -> dict[str, Timing]:
    """Interleaved times of stock and turbo.

    Args:
        drivers: stock and turbo.
        rounds: ABBA rounds.
        iterations: timed iterations of a block, two blocks a run and round.
        warmup: iterations of each run before the first round.
        progress: is told what is going on.
    """
    by_name = {d.name: d for d in drivers}
    timings = {name: Timing() for name in by_name}
    for driver in drivers:
        for _ in range(warmup):
            batch = driver.next()
    for index in range(rounds):
        progress(f'round {index + 1} of {rounds}')
        for name in ROUNDS:
            _block(by_name[name], timings[name], iterations)
    with drivers[0].active():
        batch = drivers[0].fetch()
    for name in ROUNDS:
        _bare_block(by_name[name], timings[name], batch, iterations)
    return timings


def training_rows(drivers: tuple[StepDriver, StepDriver],
                  timings: dict[str, Timing]) -> tuple[list[Row], int]:
    """Medians, then counts; and the boxes of stock's counted batch."""
    stock, turbo = timings['stock'], timings['turbo']
    size = drivers[0].batch_size
    median = statistics.median

    def milliseconds(name: str, key: str) -> Row:
        return row(name, *(1e3 * median(getattr(t, key))
                           for t in (stock, turbo)), 'ms')

    total = milliseconds('iteration time', 'iteration')
    rows = [
        total,
        milliseconds('data wait', 'data'),
        row('samples per second', size * 1e3 / total.stock,
            size * 1e3 / total.turbo, 'samples/s'),
        milliseconds('step time', 'step'),
        milliseconds('step time, same batch', 'bare'),
    ]
    counts = [count_iteration(d) for d in drivers]
    for name, kind in (('host syncs', 'sync'), ('launches', 'launch'),
                       ('uploads', 'upload')):
        rows.append(
            row(name, *(float(c.total(kind)) for c, _ in counts),
                'an iteration'))
    return rows, counts[0][1]


def shares(timing: Timing) -> dict[str, float]:
    """Parts of the iteration that wait for data and that train."""
    total = sum(timing.iteration)
    return dict(
        data=sum(timing.data) / total, network=sum(timing.step) / total)
