"""Turbo against stock, each iteration from one and the same state.

Runs that differ in rounding alone part within a few iterations, so two free
runs say little. Here, before each iteration, turbo is given stock's weights,
buffers, optimizer state and random state; then both get their own batch,
which must be equal, and are compared:

- settings: learning rates and the like, as the schedules made them;
- batch: all that stock's batch holds;
- loss: each logged value;
- gradient: each parameter's, before clipping;
- parameter, buffer, optimizer state: what the step makes of them. Turbo
  steps with *stock's* gradients: Adam divides by the gradient's own size, so
  that a rounding difference in a tiny gradient would come out as a full step.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .batches import compare_nested, relative_gap, to_array
from .stepping import StepDriver

RTOL = 1e-5
"""What ``close`` may differ by, relative to the largest value."""
GRAD_FLOOR = .05
"""Gradients are compared by their Euclidean norm, a parameter at a time; one
below this part of the whole gradient's norm is taken relative to that, which
grants four roundings of the whole: the gradient of a bias before a BatchNorm
is a sum that comes out as nothing but rounding."""
STATE_FLOOR = 1e-3
"""Optimizer state is compared by its largest value; the like floor."""
KINDS = ('settings', 'batch', 'loss', 'gradient', 'parameter', 'buffer',
         'optimizer state')


@dataclass(frozen=True)
class Finding:
    """The gap of one value in one iteration."""
    kind: str
    name: str
    iteration: int
    gap: float


def copy_tensors(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in values.items()}


class Lockstep:
    """Runs the comparison and keeps what it finds.

    Args:
        stock, turbo: drivers that load their data in this process.

    Attributes:
        findings: the worst gap of each value over all iterations.
        losses: the total loss of each iteration, of stock and of turbo.
    """

    def __init__(self, stock: StepDriver, turbo: StepDriver):
        self.stock, self.turbo = stock, turbo
        self.findings: dict[tuple[str, str], Finding] = {}
        self.losses: list[tuple[float, float]] = []
        self.terms: dict[str, tuple[float, float]] = {}
        self._iteration = 0
        self._grads: list[dict[str, Tensor | None]] = []
        self._turbo_call = 0
        self._names = {id(p): n for n, p in stock.model.named_parameters()}
        self._params = [dict(d.model.named_parameters())
                        for d in (stock, turbo)]
        self._after_backward(stock, self._keep_grads)
        self._after_backward(turbo, self._compare_grads)

    @staticmethod
    def _after_backward(driver: StepDriver, then: Callable) -> None:
        for wrapper in driver.optim_wrappers:
            backward = wrapper.backward

            def wrapped(*args, _backward=backward, **kwargs):
                _backward(*args, **kwargs)
                then()

            wrapper.backward = wrapped

    def _found(self, kind: str, name: str, gap: float) -> None:
        old = self.findings.get((kind, name))
        if old is None or gap > old.gap:
            self.findings[kind, name] = Finding(kind, name, self._iteration,
                                                gap)

    # One state ------------------------------------------------------------

    def _align(self) -> None:
        stock, turbo = self.stock, self.turbo
        turbo.model.load_state_dict(stock.model.state_dict())
        pairs = zip(stock.optimizers, turbo.optimizers, strict=True)
        for ours, theirs in pairs:
            want, got = ours.state_dict(), theirs.state_dict()
            self._compare_settings(want['param_groups'], got['param_groups'])
            # Loading takes tensors over as they are.
            theirs.load_state_dict(copy.deepcopy(want))
        mine, other = self._params
        for name, param in mine.items():
            grad = param.grad
            other[name].grad = None if grad is None else grad.clone()
        turbo.random = stock.random

    def _compare_settings(self, want: list[dict], got: list[dict]) -> None:
        if len(want) != len(got):
            raise RuntimeError(f'stock has {len(want)} parameter groups, '
                               f'turbo {len(got)}: checkpoints would not load')
        for index, (mine, other) in enumerate(zip(want, got, strict=True)):
            for key in mine.keys() & other.keys() - {'params', 'fused'}:
                if isinstance(mine[key], (float, int, tuple, list)):
                    gap = relative_gap(
                        np.asarray(mine[key], np.float64),
                        np.asarray(other[key], np.float64))
                    self._found('settings', f'{key} of group {index}', gap)

    # One iteration --------------------------------------------------------

    def iterate(self) -> None:
        """One iteration of both, compared."""
        stock, turbo = self.stock, self.turbo
        self._align()
        batches = []
        for driver in (stock, turbo):
            with driver.active():
                batches.append(driver.fetch())
        for path, gap in compare_nested(*batches):
            self._found('batch', path, gap)
        turbo.random = stock.random
        before = copy_tensors(self._params[0])
        self._grads, self._turbo_call = [], 0
        for driver, batch in zip((stock, turbo), batches, strict=True):
            with driver.active():
                driver.step(batch)
        self._compare_losses()
        self._compare_step(before)
        self._iteration += 1

    def _keep_grads(self) -> None:
        self._grads.append({
            n: None if p.grad is None else p.grad.detach().clone()
            for n, p in self._params[0].items()
        })

    def _compare_grads(self) -> None:
        """Compare, then let turbo step with stock's gradients."""
        if self._turbo_call >= len(self._grads):
            self._found('gradient', 'number of backward passes', math.inf)
            return
        want = self._grads[self._turbo_call]
        self._turbo_call += 1
        whole = math.hypot(*(float(g.norm()) for g in want.values()
                             if g is not None))
        for name, param in self._params[1].items():
            mine, other = want[name], param.grad
            if mine is None or other is None:
                gap = 0. if mine is other else math.inf
                param.grad = None if mine is None else mine.clone()
            else:
                gap = gradient_gap(mine, other, GRAD_FLOOR * whole)
                other.detach().copy_(mine)
            self._found('gradient', name, gap)

    def _compare_losses(self) -> None:
        want, got = self.stock.outputs, self.turbo.outputs
        for name, value in want.items():
            if name not in got:
                self._found('loss', name, math.inf)
                continue
            mine, other = to_array(value), to_array(got[name])
            self._found('loss', name, relative_gap(mine, other))
            self.terms[name] = (float(mine.mean()), float(other.mean()))
        self.losses.append((total_loss(want), total_loss(got)))

    def _compare_step(self, before: dict[str, Tensor]) -> None:
        mine, other = self._params
        for name, param in mine.items():
            gap = update_gap(*map(to_array, (before[name], param,
                                             other[name])))
            self._found('parameter', name, gap)
        buffers = dict(self.turbo.model.named_buffers())
        for name, buffer in self.stock.model.named_buffers():
            if name in buffers:
                self._found('buffer', name,
                            relative_gap(to_array(buffer),
                                         to_array(buffers[name]), 1e-6))
        for ours, theirs in zip(
                self.stock.optimizers, self.turbo.optimizers, strict=True):
            self._compare_states(ours, theirs)

    def _compare_states(self, ours: torch.optim.Optimizer,
                        theirs: torch.optim.Optimizer) -> None:
        order = [p for g in ours.param_groups for p in g['params']]
        want, got = (o.state_dict()['state'] for o in (ours, theirs))
        largest: dict[str, float] = {}
        for state in want.values():
            for key, value in state.items():
                array = to_array(value)
                if array is not None and array.size:
                    largest[key] = max(
                        largest.get(key, 0.), float(np.abs(array).max()))
        for index, state in want.items():
            for key, value in state.items():
                mine = to_array(value)
                if mine is None:
                    continue
                other = to_array(got.get(index, {}).get(key))
                gap = math.inf if other is None else relative_gap(
                    mine, other, STATE_FLOOR * largest[key])
                name = self._names.get(id(order[index]), str(index))
                self._found('optimizer state', f'{key} of {name}', gap)

    # The verdict ----------------------------------------------------------

    def worst(self) -> dict[str, Finding]:
        """The largest gap of each kind."""
        result = {}
        for kind in KINDS:
            found = [f for f in self.findings.values() if f.kind == kind]
            if found:
                result[kind] = max(found, key=lambda f: f.gap)
        return result


def total_loss(outputs: dict[str, Any]) -> float:
    """The sum that is trained on, from what ``train_step`` returned."""
    if 'loss' in outputs:
        return float(to_array(outputs['loss']))
    return sum(float(to_array(v)) for k, v in outputs.items() if 'loss' in k)


def gradient_gap(want: Tensor, got: Tensor, floor: float) -> float:
    """Norm of the difference over the norm of ``want`` (at least floor)."""
    if want.shape != got.shape:
        return math.inf
    want, got = want.double(), got.double()
    same = (want == got) | (want.isnan() & got.isnan())
    if same.all():
        return 0.
    gap = float((want - got)[~same].norm())
    if not math.isfinite(gap):
        return math.inf
    return gap / max(float(want[~want.isnan()].norm()), floor)


def update_gap(before: np.ndarray, want: np.ndarray,
               got: np.ndarray) -> float:
    """Difference of two updates of one parameter, relative to the update.

    Two roundings of the parameter itself are granted, for a small step from
    a large value cannot be told better than that; 0 means equal bits.
    """
    if np.array_equal(want, got, equal_nan=True):
        return 0.
    if not (np.isfinite(want).all() and np.isfinite(got).all()):
        return float('inf')
    update = float(np.abs(want - before).max())
    rounding = float(np.finfo(want.dtype).eps * np.abs(want).max())
    gap = float(np.abs(want - got).max())
    # Not zero: a bitwise plan must not differ at all.
    return max(gap - 2 * rounding, 1e-3 * RTOL * gap) / max(update, rounding)
