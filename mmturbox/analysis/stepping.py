"""Training step by step, several runners in one process.

A :class:`StepDriver` holds a runner that is set up as ``runner.train()`` sets
it up, and then makes one iteration at a time, hooks included. Drivers take
turns: what is global in a process (random state, MMEngine's current message
hub and scope) is swapped in for a step and out after it, and the data workers
of a driver are held while another one is at work, so that its timing and its
data order are those of a run of its own.
"""

import contextlib
import copy
import inspect
import itertools
import os
import random
import signal
import time
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


class _Ready(BaseException):
    """Raised where ``runner.train()`` would start its loop."""


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


class StepDriver:
    """One training run, an iteration at a time.

    Args:
        cfg: the config as the user has it.
        turbo: whether to apply the plan.
        work_dir: the folder for its logs.
        in_process: load data in this process, one sample after another, so
            that the random numbers drawn do not depend on the workers.

    Attributes:
        outputs: what the last ``train_step`` returned (the logged values).
        data_time, step_time: seconds of the last iteration.
    """

    def __init__(self,
                 cfg: Any,
                 turbo: bool,
                 work_dir: str,
                 in_process: bool = False):
        self.turbo = turbo
        self.name = 'turbo' if turbo else 'stock'
        self.outputs: dict[str, Any] = {}
        self.data_time = self.step_time = 0.
        self._index = 0
        self._iterator: Iterator | None = None
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
        if in_process:
            self._load_in_process()
        with self.active():
            self._prepare()

    # Setting up -----------------------------------------------------------

    def _load_in_process(self) -> None:
        loader = self.runner._train_dataloader
        loader['num_workers'] = 0
        loader['persistent_workers'] = False
        for key in ('prefetch_factor', 'multiprocessing_context', 'timeout'):
            loader.pop(key, None)

    def _prepare(self) -> None:
        runner = self.runner
        build = runner.build_train_loop

        def build_and_hold(*args, **kwargs):
            loop = build(*args, **kwargs)
            loop.run = self._stop
            return loop

        runner.build_train_loop = build_and_hold
        for hook in runner.hooks:
            if type(hook).__name__.endswith('CheckpointHook'):
                hook.interval, hook.save_last = -1, False
        with self._adopt_workers(), contextlib.suppress(_Ready):
            runner.train()
        loop = runner.train_loop
        self._takes_index = 'idx' in inspect.signature(
            loop.run_iter).parameters
        model = runner.model
        train_step = model.train_step

        def keep_outputs(*args, **kwargs):
            self.outputs = train_step(*args, **kwargs)
            return self.outputs

        model.train_step = keep_outputs
        runner.call_hook('before_train')
        self._start_epoch()

    @staticmethod
    def _stop() -> None:
        raise _Ready

    def _start_epoch(self) -> None:
        self.runner.call_hook('before_train_epoch')
        self.runner.model.train()
        with self._adopt_workers():
            # An iteration-based loop brings its own, which never ends.
            self._iterator = getattr(
                self.runner.train_loop, 'dataloader_iterator',
                None) or iter(self.runner.train_dataloader)
        self._index = 0

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

    # Taking turns ---------------------------------------------------------

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Swap this run's global state in, and out again at the end."""
        outside = RandomState.capture()
        self.random.restore()
        for manager, name in self._names.items():
            if name in manager._instance_dict:
                manager._instance_dict.move_to_end(name)
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)
            self.random = RandomState.capture()
            outside.restore()

    def _signal(self, number: int) -> None:
        for process in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    # Steps ----------------------------------------------------------------

    def fetch(self) -> Any:
        """The next batch; over the end of an epoch into the next one."""
        begin = time.perf_counter()
        try:
            batch = next(self._iterator)
        except StopIteration:
            self.runner.call_hook('after_train_epoch')
            self.runner.train_loop._epoch += 1
            begin = time.perf_counter()
            self._start_epoch()
            batch = next(self._iterator)
        self.data_time = time.perf_counter() - begin
        return batch

    def step(self, batch: Any) -> None:
        """One iteration on ``batch``: hooks, forward, backward, step."""
        loop = self.runner.train_loop
        begin = time.perf_counter()
        if self._takes_index:
            loop.run_iter(self._index, batch)
        else:
            loop.run_iter(batch)
        synchronize()
        self.step_time = time.perf_counter() - begin
        self._index += 1

    def next(self) -> Any:
        """Fetch and step; returns the batch."""
        with self.active():
            batch = self.fetch()
            self.step(batch)
        return batch

    def logs_next(self) -> bool:
        """Whether the logger reads values in the coming iteration."""
        runner = self.runner
        index = self._index if self._takes_index else runner.iter
        for hook in runner.hooks:
            if not type(hook).__name__.endswith('LoggerHook'):
                continue
            last = hook.end_of_epoch(runner.train_dataloader, index)
            if hook.every_n_inner_iters(index, hook.interval) or last:
                return True
        return False

    # What is looked at ----------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        """The model without a wrapper."""
        return getattr(self.runner.model, 'module', self.runner.model)

    @property
    def accelerator(self) -> bool:
        return get_device() != 'cpu'

    @property
    def batch_size(self) -> int:
        return self.runner.train_dataloader.batch_size or (
            self.runner.train_dataloader.batch_sampler.batch_size)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        wrapper = self.runner.optim_wrapper
        wrappers = getattr(wrapper, 'optim_wrappers', {'': wrapper})
        return [w.optimizer for w in wrappers.values()]

    def close(self) -> None:
        """Stop the workers and forget MMEngine's global instances."""
        self._signal(signal.SIGCONT)
        self._iterator = None
        loop = self.runner.train_loop
        for holder, attribute in ((loop.dataloader, '_iterator'),
                                  (loop, 'dataloader_iterator')):
            iterator = getattr(holder, attribute, None)
            iterator = getattr(iterator, '_iterator', iterator)
            if hasattr(iterator, '_shutdown_workers'):
                iterator._shutdown_workers()
            if hasattr(holder, attribute):
                setattr(holder, attribute, None)
        for manager, name in self._names.items():
            manager._instance_dict.pop(name, None)
        for handler in self.runner.logger.handlers:
            handler.close()


@contextlib.contextmanager
def pair(cfg: Any,
         work_dir: str,
         in_process: bool = False) -> Iterator[tuple[StepDriver, StepDriver]]:
    """Stock and turbo of one config, from the same initial weights."""
    with contextlib.ExitStack() as stack:
        drivers = []
        for turbo in (False, True):
            folder = os.path.join(work_dir, 'turbo' if turbo else 'stock')
            driver = StepDriver(cfg, turbo, folder, in_process)
            stack.callback(driver.close)
            drivers.append(driver)
        stock, turbo = drivers
        turbo.model.load_state_dict(stock.model.state_dict())
        yield stock, turbo
