"""Training step by step.

A :class:`StepDriver` holds a runner that is set up as ``runner.train()`` sets
it up, and then makes one iteration at a time, hooks included.
"""

import contextlib
import inspect
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import torch
from mmengine.optim import OptimWrapper

from .turns import Turns, synchronize


class _Ready(BaseException):
    """Raised where ``runner.train()`` would start its loop."""


class StepDriver(Turns):
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
        super().__init__(cfg, turbo, work_dir)
        self.outputs: dict[str, Any] = {}
        self.data_time = self.step_time = 0.
        self._index = 0
        self._iterator: Iterator | None = None
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
    def batch_size(self) -> int:
        return self.runner.train_dataloader.batch_size or (
            self.runner.train_dataloader.batch_sampler.batch_size)

    @property
    def optim_wrappers(self) -> list[OptimWrapper]:
        wrapper = self.runner.optim_wrapper
        return list(getattr(wrapper, 'optim_wrappers', {'': wrapper}).values())

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [w.optimizer for w in self.optim_wrappers]

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        # Ask the loader first: it tells its workers to leave.
        loader = self.runner.train_loop.dataloader
        for iterator in (self._iterator,
                         getattr(self._iterator, '_iterator', None),
                         getattr(loader, '_iterator', None)):
            if hasattr(iterator, '_shutdown_workers'):
                iterator._shutdown_workers()
        super().close()


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
