"""Several runners in one process, taking turns.

What is global in a process (random state, MMEngine's current message hub and
scope) is swapped in for a run's turn and out after it, and the data workers
of a run are held while another one is at work, so that its timing and its
data order are those of a run of its own.
"""

import contextlib
import copy
import itertools
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
from mmengine.device import get_device
from mmengine.logging import MessageHub, MMLogger
from mmengine.registry import RUNNERS, DefaultScope
from mmengine.runner import Runner
from mmengine.visualization import Visualizer

SEED = 0
_numbers = itertools.count()


@dataclass
class RandomState:
    """The states of Python's, numpy's and torch's generators."""
    python: Any
    numpy: Any
    torch: torch.Tensor
    cuda: list[torch.Tensor]

    @classmethod
    def capture(cls) -> 'RandomState':
        cuda = torch.cuda.get_rng_state_all(
        ) if torch.cuda.is_initialized() else []
        return cls(random.getstate(), np.random.get_state(),
                   torch.get_rng_state(), cuda)

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


def synchronize() -> None:
    """Wait for the device, where there is one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def build_runner(cfg: Any, turbo: bool, work_dir: str) -> Runner:
    """A runner of ``cfg``, stock or turbo.

    Args:
        cfg: the config as the user has it; not changed.
        turbo: False builds what ``MMTURBOX=0`` would.
        work_dir: the folder for its logs.

    Raises:
        RuntimeError: turbo is asked for under ``MMTURBOX=0``.
    """
    cfg = copy.deepcopy(cfg)
    cfg.work_dir = work_dir
    # Names of MMEngine's global instances: equal ones would be shared.
    cfg.experiment_name = f'{"turbo" if turbo else "stock"}{next(_numbers)}'
    if isinstance(cfg.get('visualizer'), dict):
        cfg.visualizer.name = cfg.experiment_name
    if (cfg.get('randomness') or {}).get('seed') is None:
        cfg.randomness = dict(cfg.get('randomness') or {}, seed=SEED)
    kind = cfg.get('runner_type')
    name = kind if isinstance(kind, str) else getattr(kind, '__module__', '')
    own = kind is not None and not name.startswith('mmturbox.')
    if turbo:
        if os.environ.get('MMTURBOX') == '0':
            raise RuntimeError('MMTURBOX=0 is set, which leaves nothing to '
                               'compare with stock; unset it')
        from mmturbox.runner import TurboRunner
        return RUNNERS.build(cfg) if own else TurboRunner.from_cfg(cfg)
    before = os.environ.get('MMTURBOX')
    os.environ['MMTURBOX'] = '0'
    try:
        return RUNNERS.build(cfg) if own else Runner.from_cfg(cfg)
    finally:
        if before is None:
            del os.environ['MMTURBOX']
        else:
            os.environ['MMTURBOX'] = before


class Turns:
    """A runner and what it must have to itself while it is at work.

    Args:
        cfg: the config as the user has it.
        turbo: whether to apply the plan.
        work_dir: the folder for its logs.
    """

    def __init__(self, cfg: Any, turbo: bool, work_dir: str):
        self.turbo = turbo
        self.name = 'turbo' if turbo else 'stock'
        self._workers: list[psutil.Process] = []
        outside = RandomState.capture()
        self.runner = build_runner(cfg, turbo, work_dir)
        self.random = RandomState.capture()
        outside.restore()
        self._names = {
            MessageHub: self.runner.message_hub.instance_name,
            MMLogger: self.runner.logger.instance_name,
            Visualizer: self.runner.visualizer.instance_name
        }
        if self.runner.default_scope is not None:
            self._names[DefaultScope] = self.runner.default_scope.instance_name

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Swap this run's global state in, and out again at the end."""
        outside = RandomState.capture()
        self.random.restore()
        for manager, name in self._names.items():
            if name in manager._instance_dict:
                manager._instance_dict.move_to_end(name)
        self._signal(signal.SIGCONT)
        calls = getattr(self.runner, 'calls', contextlib.nullcontext)
        try:
            with calls():
                yield
        finally:
            self._signal(signal.SIGSTOP)
            self.random = RandomState.capture()
            outside.restore()

    def _signal(self, number: int) -> None:
        for process in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    @contextlib.contextmanager
    def _adopt_workers(self) -> Iterator[None]:
        """Take the processes that the block starts for data workers."""
        parent = psutil.Process()
        before = set(parent.children(recursive=True))
        yield
        new = set(parent.children(recursive=True)) - before
        # Of persistent workers, later epochs start none.
        self._workers = [p for p in self._workers if p.is_running()] + [
            p for p in new if 'tracker' not in ' '.join(p.cmdline())
        ]

    @property
    def model(self) -> torch.nn.Module:
        """The model without a wrapper."""
        return getattr(self.runner.model, 'module', self.runner.model)

    @property
    def accelerator(self) -> bool:
        return get_device() != 'cpu'

    def close(self) -> None:
        """Stop the workers and forget MMEngine's global instances."""
        self._signal(signal.SIGCONT)
        for process in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(self._workers, timeout=5)
        for manager, name in self._names.items():
            manager._instance_dict.pop(name, None)
        for handler in self.runner.logger.handlers:
            handler.close()
