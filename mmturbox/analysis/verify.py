"""Whether turbo trains as stock does: lockstep, free run, bisection."""

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .lockstep import RTOL, Lockstep, copy_tensors, total_loss
from .stepping import StepDriver, pair
from .turns import RandomState

FREE_RUN = 'free run'
NUDGE = 1e-7
NUDGED_RUNS = 2
FREE_FACTOR = 3.
FREE_FLOOR = 1e-4
"""Free-run gaps below this agree, whatever the nudged runs did."""
STATISTICAL_FLOOR = .05
"""The same for the mean loss of the last half under a statistical plan."""


@dataclass(frozen=True)
class Check:
    """One line of the verdict.

    Attributes:
        judged: False for what is shown only.
    """
    name: str
    gap: float
    limit: float
    where: str
    judged: bool = True

    @property
    def agrees(self) -> bool:
        return self.gap <= self.limit


@dataclass
class Verdict:
    """What verify found.

    Attributes:
        terms: logged value -> (stock, turbo), of the last iteration.
        curves: loss of each iteration: ``stock``, ``turbo`` in lockstep,
            ``turbo free``, ``nudged 1``, ...
    """
    parity: str
    passes: list[str]
    checks: list[Check]
    terms: dict[str, tuple[float, float]] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return all(c.agrees for c in self.checks if c.judged)

    @property
    def lockstep_agrees(self) -> bool:
        return all(c.agrees for c in self.checks
                   if c.judged and c.name != FREE_RUN)

    @property
    def largest_gap(self) -> float:
        """Of all that is judged in lockstep (of the free run if nothing)."""
        lockstep = [c.gap for c in self.checks
                    if c.judged and c.name != FREE_RUN]
        return max(lockstep or [c.gap for c in self.checks], default=0.)


def _plan_of(driver: StepDriver) -> tuple[str, list[Any]]:
    plan = getattr(driver.runner, 'plan', None)
    if plan is None:
        return 'bitwise', []
    return plan.parity, plan.applied


def _limits(parity: str, steps: Sequence[Any]) -> dict[str, float]:
    limit = 0. if parity == 'bitwise' else RTOL
    kinds = ('loss', 'gradient', 'parameter', 'buffer', 'optimizer state')
    limits = dict.fromkeys(kinds, limit)
    exact = all(s.parity == 'bitwise' for s in steps if s.side == 'data')
    # Schedules are computed in Python, in the order stock has them in.
    return dict(limits, batch=0. if exact else RTOL, settings=1e-12)


def run_lockstep(cfg: Any,
                 work_dir: str,
                 iterations: int,
                 progress: Callable[[str], None] = print
                 ) -> tuple[Verdict, '_Start']:
    """Compare iteration by iteration; see :mod:`.lockstep`."""
    with pair(cfg, work_dir, in_process=True) as (stock, turbo):
        parity, steps = _plan_of(turbo)
        start = _Start(
            copy_tensors(stock.model.state_dict()), stock.random)
        lockstep = Lockstep(stock, turbo)
        for index in range(iterations):
            lockstep.iterate()
            mine, other = lockstep.losses[-1]
            progress(f'iteration {index + 1} of {iterations}: loss {mine:.6g} '
                     f'(stock), {other:.6g} (turbo)')
    limits = _limits(parity, steps)
    checks = [
        Check(kind, found.gap, limits[kind],
              f'{found.name}, iteration {found.iteration + 1}',
              parity != 'statistical')
        for kind, found in lockstep.worst().items()
    ]
    stock_losses, turbo_losses = zip(*lockstep.losses, strict=True)
    verdict = Verdict(parity, [s.name for s in steps], checks, lockstep.terms,
                      dict(stock=list(stock_losses), turbo=list(turbo_losses)))
    return verdict, start


@dataclass
class _Start:
    """Where stock began, so that free runs can begin there too."""
    weights: dict[str, torch.Tensor]
    random: RandomState


def free_run(cfg: Any, work_dir: str, start: _Start, iterations: int,
             turbo: bool, nudge: int = 0) -> list[float]:
    """The losses of an undisturbed run from ``start``.

    Args:
        nudge: above 0, the seed of a relative change of all weights by 1e-7.
    """
    driver = StepDriver(cfg, turbo, work_dir, in_process=True)
    with contextlib.closing(driver):
        driver.model.load_state_dict(start.weights)
        if nudge:
            generator = torch.Generator().manual_seed(nudge)
            with torch.no_grad():
                for p in driver.model.parameters():
                    noise = torch.randn(p.shape, generator=generator)
                    p.mul_((1 + NUDGE * noise).to(p))
        driver.random = start.random
        losses = []
        for _ in range(iterations):
            driver.next()
            losses.append(total_loss(driver.outputs))
    return losses


def _largest_gap(stock: Sequence[float], other: Sequence[float]) -> float:
    want, got = np.asarray(stock), np.asarray(other)
    if not np.isfinite(got).all():
        return 0. if np.array_equal(want, got, equal_nan=True) else np.inf
    return float((np.abs(got - want) / np.maximum(np.abs(want), 1e-12)).max())


def _mean_gap(stock: Sequence[float], other: Sequence[float]) -> float:
    half = len(stock) // 2
    return _largest_gap([np.mean(stock[half:])], [np.mean(other[half:])])


def judge_free_run(parity: str, curves: dict[str, list[float]]) -> Check:
    """The free run may part from stock as nudged stock runs do, times 3."""
    statistical = parity == 'statistical'
    gap_of = _mean_gap if statistical else _largest_gap
    stock = curves['stock']
    nudged = max(
        gap_of(stock, losses) for name, losses in curves.items()
        if name.startswith('nudged'))
    floor = STATISTICAL_FLOOR if statistical else FREE_FLOOR
    what = 'mean of the last half' if statistical else 'largest of all'
    return Check(FREE_RUN, gap_of(stock, curves['turbo free']),
                 max(FREE_FACTOR * nudged, floor),
                 f'{what}; stock nudged by {NUDGE:g}: {nudged:.1e}')


def verify(cfg: Any,
           work_dir: str,
           iterations: int = 8,
           progress: Callable[[str], None] = print) -> Verdict:
    """Lockstep and free run of ``cfg``, turbo against stock."""
    verdict, start = run_lockstep(cfg, work_dir, iterations, progress)
    jobs = [('turbo free', True, 0)]
    jobs += [(f'nudged {n}', False, n) for n in range(1, NUDGED_RUNS + 1)]
    for name, turbo, nudge in jobs:
        progress(f'free run: {name}')
        verdict.curves[name] = free_run(
            cfg, os.path.join(work_dir, name.replace(' ', '_')), start,
            iterations, turbo, nudge)
    verdict.checks.append(judge_free_run(verdict.parity, verdict.curves))
    return verdict


# Which pass it is ---------------------------------------------------------


def without(cfg: Any, passes: Iterator[str] | Sequence[str]) -> Any:
    """A copy of ``cfg`` with these passes turned off."""
    cfg = copy.deepcopy(cfg)
    turbo = dict(cfg.get('turbo') or {})
    turbo.update(dict.fromkeys(passes, False))
    cfg.turbo = turbo
    return cfg


def find_culprits(passes: Sequence[str],
                  breaks: Callable[[Sequence[str]], bool]) -> list[str]:
    """A smallest set of passes that still breaks the run.

    Args:
        passes: applied passes, which break the run together.
        breaks: whether a run with only these passes on is broken.

    Returns:
        Usually one name; several where they break the run only together;
        none where the run is broken without any pass.
    """
    if breaks([]):
        return []
    suspects, needed = list(passes), []
    # Keep halving; what is certain to be needed is on in every trial.
    while len(suspects) > 1:
        half = len(suspects) // 2
        left, right = suspects[:half], suspects[half:]
        if breaks(needed + left):
            suspects = left
        elif breaks(needed + right):
            suspects = right
        else:
            return _thin_out(needed + suspects, breaks)
    return needed + suspects


def _thin_out(passes: list[str],
              breaks: Callable[[Sequence[str]], bool]) -> list[str]:
    for name in list(passes):
        rest = [p for p in passes if p != name]
        if breaks(rest):
            passes = rest
    return passes


def bisect(cfg: Any,
           work_dir: str,
           iterations: int,
           free_runs: bool = False,
           progress: Callable[[str], None] = print) -> list[str]:
    """The passes of the plan of ``cfg`` that make verify fail.

    A run that raises is broken too.

    Args:
        free_runs: judge by the free run as well; costs three more runs a
            trial, and is needed only where lockstep agrees.
    """
    from mmturbox.passes.driver import make_plan
    applied = [s.name for s in make_plan(cfg).applied]

    def breaks(on: Sequence[str]) -> bool:
        off = [name for name in applied if name not in on]
        progress(f'bisect: trying {", ".join(on) or "no pass"}')
        trial = without(cfg, off), work_dir, iterations, lambda text: None
        try:
            broken = not (verify(*trial).agrees
                          if free_runs else run_lockstep(*trial)[0].agrees)
        except Exception as error:  # any failure of a pass counts
            progress(f'bisect: {type(error).__name__}: {error}')
            broken = True
        progress(f'bisect: {"broken" if broken else "agrees"}')
        return broken

    return find_culprits(applied, breaks)
