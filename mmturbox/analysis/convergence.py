"""Loss curves of finished runs: where they converge, and whether they agree.

- *Smoothed*: a centred moving average over a twentieth of the records, with
  windows that shrink at both ends, so that the curve is not shifted.
- *Plateau*: the median of the last fifth of the smoothed curve; the *fall* is
  the first smoothed value less the plateau.
- *Convergence* (the knee): the first step from which on the smoothed loss
  stays within 5 % of the fall above the plateau. There is none where the
  curve does not fall by three times its noise, or still falls in its last
  fifth by 5 % of the fall.
- Two *trends agree* where the smoothed curves are nowhere further apart than
  10 % of the first one's fall (or three times its noise).
"""

import glob
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .report import Row, row

BAND = .05
TREND_BAND = .1
TAIL = .2


@dataclass
class Run:
    """The training curve of one work dir.

    Attributes:
        steps, losses: (N,) the logged iterations and their loss.
        seconds: (N,) time of an iteration around each record, 0 where it was
            not logged.
        smoothed: (N,) the smoothed losses.
        noise: standard deviation of the losses around the smoothed curve.
        fall, plateau: see the module.
        knee: the step of convergence, or None.
    """
    name: str
    steps: np.ndarray
    losses: np.ndarray
    seconds: np.ndarray

    def __post_init__(self):
        if len(self.steps) < 5:
            raise ValueError(f'run {self.name} logged {len(self.steps)} '
                             'losses; at least 5 are needed')
        self.smoothed = smooth(self.losses)
        self.noise = float(np.std(self.losses - self.smoothed))
        tail = self.smoothed[-_tail(len(self.steps)):]
        self.plateau = float(np.median(tail))
        self.fall = float(self.smoothed[0] - self.plateau)
        self.knee = self._find_knee(tail)

    def _find_knee(self, tail: np.ndarray) -> int | None:
        if self.fall <= 3 * self.noise:
            return None
        half = len(tail) // 2
        still = float(tail[:half].mean() - tail[-half:].mean())
        if still > BAND * self.fall:
            return None
        outside = np.flatnonzero(
            self.smoothed > self.plateau + BAND * self.fall)
        first = outside[-1] + 1 if len(outside) else 0
        return int(self.steps[first]) if first < len(self.steps) else None

    @property
    def throughput(self) -> float:
        """Steps a second, by the median iteration; 0 where not logged."""
        logged = self.seconds[self.seconds > 0]
        return float(1 / np.median(logged)) if len(logged) else 0.

    @property
    def knee_seconds(self) -> float | None:
        """Training time until convergence."""
        if self.knee is None:
            return None
        spans = np.diff(self.steps, prepend=0)
        upto = self.steps <= self.knee
        return float((spans * self.seconds)[upto].sum())


def _tail(length: int) -> int:
    return max(2, round(TAIL * length))


def smooth(values: np.ndarray) -> np.ndarray:
    """(N,) -> (N,): the centred moving average of the module."""
    half = len(values) // 40
    sums = np.concatenate([[0.], np.cumsum(values, dtype=np.float64)])
    index = np.arange(len(values))
    reach = np.minimum(np.minimum(index, len(values) - 1 - index), half)
    return (sums[index + reach + 1] - sums[index - reach]) / (2 * reach + 1)


def read_run(work_dir: str, key: str = 'loss') -> Run:
    """Read the logs that MMEngine leaves in a work dir.

    A resumed run has several; where steps overlap, the later one counts.

    Args:
        work_dir: the run's work dir, or one of the time-stamped folders.
        key: the logged value to take.

    Raises:
        FileNotFoundError: no log is there.
        ValueError: a log line cannot be read, or too few hold ``key``.
    """
    found = []
    for name in ('scalars.json', '[0-9]*.json'):
        for depth in ('*/vis_data', 'vis_data', '*', '.'):
            found = glob.glob(os.path.join(work_dir, depth, name))
            if found:
                break
        if found:
            break
    if not found:
        raise FileNotFoundError(
            f'{work_dir} holds no vis_data/scalars.json or <timestamp>.json; '
            'give the work_dir of a run that has logged')
    records: dict[int, tuple[float, float]] = {}
    for path in sorted(found):
        with open(path) as file:
            lines = [line for line in file if line.strip()]
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
            except json.JSONDecodeError as error:
                if number == len(lines):  # cut off when the run was stopped
                    continue
                raise ValueError(f'{path}, line {number} is not JSON: '
                                 f'{error}') from error
            step = entry.get('iter', entry.get('step'))
            if key in entry and step is not None:
                records = {s: r for s, r in records.items() if s < step}
                records[step] = (entry[key], entry.get('time', 0.))
    steps = sorted(records)
    values = np.asarray([records[s] for s in steps], float).reshape(-1, 2)
    name = os.path.basename(os.path.normpath(work_dir))
    return Run(name, np.asarray(steps), values[:, 0], values[:, 1])


def trend_distance(want: Run, got: Run) -> tuple[float, float]:
    """(largest distance of the smoothed curves, what is granted)."""
    last = min(want.steps[-1], got.steps[-1])
    first = max(want.steps[0], got.steps[0])
    common = want.steps[(want.steps >= first) & (want.steps <= last)]
    if not len(common):
        return float('inf'), 0.
    mine = np.interp(common, want.steps, want.smoothed)
    other = np.interp(common, got.steps, got.smoothed)
    granted = max(TREND_BAND * abs(want.fall), 3 * want.noise)
    return float(np.abs(mine - other).max()), granted


def trends_agree(want: Run, got: Run) -> bool:
    distance, granted = trend_distance(want, got)
    return distance <= granted


def unique_names(runs: Sequence[Run], paths: Sequence[str]) -> None:
    """Name runs by their whole path where folder names repeat."""
    names = [r.name for r in runs]
    for run, path in zip(runs, paths, strict=True):
        if names.count(run.name) > 1:
            run.name = path


def compare(runs: Sequence[Run]) -> list[Row]:
    """Each run against the first one, which stands for stock."""
    first, rows = runs[0], []
    for run in runs[1:]:
        suffix = f' ({run.name})' if len(runs) > 2 else ''
        if first.knee is not None and run.knee is not None:
            rows.append(
                row(f'steps to convergence{suffix}', float(first.knee),
                    float(run.knee), 'steps'))
        if first.knee_seconds and run.knee_seconds:
            rows.append(
                row(f'time to convergence{suffix}', first.knee_seconds,
                    run.knee_seconds, 's'))
        if first.throughput and run.throughput:
            rows.append(
                row(f'throughput{suffix}', first.throughput, run.throughput,
                    'steps/s'))
        loss = first.plateau, run.plateau
        rows.append(
            Row(f'final loss{suffix}', *loss,
                loss[0] / max(loss[1], 1e-12), 'loss'))
    return rows
