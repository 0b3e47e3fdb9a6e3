"""MMEngine's Runner with the passes run over its config first."""

import json
import logging
import os.path as osp
from collections.abc import Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import partial
from typing import Any

from mmengine.dist import init_dist, is_distributed, is_main_process
from mmengine.logging import MMLogger
from mmengine.runner import BaseLoop, Runner
from torch import nn
from torch.utils.data import DataLoader

from mmturbox.datasets import check_data_configs
from mmturbox.datasets.loaders import complete_worker_init
from mmturbox.passes.base import Environment
from mmturbox.passes.driver import make_plan, switched_off
from mmturbox.passes.plan import Plan
from mmturbox.registry import RUNNERS
from mmturbox.system import compat
from mmturbox.system.preflight import preflight

from .agreement import (
    agree_on_environment,
    agree_on_order,
    agree_on_plan,
    agree_on_switch,
)
from .calls import in_place

# The unbound original, also where the seam of mmturbox.enable is set.
_STOCK_FROM_CFG = Runner.__dict__['from_cfg'].__func__
PLAN_FILE = 'turbo_plan.json'
_META_KEY = 'mmturbox_plan'


@RUNNERS.register_module()
class TurboRunner(Runner):
    """A Runner whose first act is to make and apply the plan.

    Built through :meth:`from_cfg` only (as OpenMMLab's scripts do, with
    ``runner_type='mmturbox.TurboRunner'`` or ``mmturbox.enable``); the plan
    is logged as one table, written to ``turbo_plan.json`` in the work dir and
    recorded in the dumped config under ``turbo.applied``. Under
    ``MMTURBOX=0`` it is a plain Runner.

    Attributes:
        plan: the plan that was applied.
    """

    def __init__(self, *args, plan: Plan | None = None, **kwargs):
        self.plan = plan or Plan([])
        super().__init__(*args, **kwargs)

    @classmethod
    def from_cfg(cls, cfg: Any) -> 'TurboRunner':
        """Check, plan, edit a copy of ``cfg`` and build the runner from it.

        Raises:
            ValueError, TypeError, FileNotFoundError: bad input, before
                anything is built; the message names the thing and the remedy.
        """
        compat.install()
        preflight(cfg)
        cfg = deepcopy(cfg)
        launcher = cfg.get('launcher', 'none')
        if launcher != 'none' and not is_distributed():
            # The plan may depend on the ranks, and they must agree on it.
            dist_cfg = (cfg.get('env_cfg') or {}).get('dist_cfg') or {}
            init_dist(launcher, **dist_cfg)
        agree_on_switch(switched_off())
        env = agree_on_environment(Environment.detect(cfg))
        plan = make_plan(cfg, env)
        agree_on_plan(plan)
        plan.apply(cfg)
        return _STOCK_FROM_CFG(partial(cls, plan=plan), cfg)

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        if switched_off():
            logger.info('MMTURBOX=0: this is the stock run')
        else:
            logger.info('\n' + self.plan.table())
            if is_main_process():
                path = osp.join(self.work_dir, PLAN_FILE)
                with open(path, 'w') as file:
                    json.dump(self.plan.to_dict(), file, indent=1)
        return logger

    def build_model(self, model: Any) -> nn.Module:
        """As MMEngine's; then the layers that the plan replaces."""
        model = super().build_model(model)
        for name, on in (self.cfg.get('operator_modules') or {}).items():
            if on:
                # Imports mmdet3d, which other runs need not have.
                from mmturbox.models.conversions import CONVERSIONS
                count = CONVERSIONS[name](model)
                self.logger.info(f'{name}: {count} layers replaced')
        return model

    def calls(self) -> AbstractContextManager[None]:
        """The functions that the plan replaces are replaced within it."""
        wanted = self.cfg.get('operator_calls') or {}
        return in_place(name for name, on in wanted.items() if on)

    # What is to run is known only here: a test needs no training data.
    def train(self) -> nn.Module:
        check_data_configs(self.cfg, 'train')
        with self.calls():
            return super().train()

    def val(self) -> dict:
        check_data_configs(self.cfg, 'val')
        with self.calls():
            return super().val()

    def test(self) -> dict:
        check_data_configs(self.cfg, 'test')
        with self.calls():
            return super().test()

    def build_train_loop(self, loop: Any) -> BaseLoop:
        return self._in_one_order('train', super().build_train_loop(loop))

    def build_val_loop(self, loop: Any) -> BaseLoop:
        return self._in_one_order('val', super().build_val_loop(loop))

    def build_test_loop(self, loop: Any) -> BaseLoop:
        return self._in_one_order('test', super().build_test_loop(loop))

    @staticmethod
    def _in_one_order(part: str, loop: BaseLoop) -> BaseLoop:
        loader = getattr(loop, 'dataloader', None)
        agree_on_order(f'{part}_dataloader', getattr(loader, 'dataset', None))
        return loop

    @staticmethod
    def build_dataloader(dataloader: Any,
                         seed: int | None = None,
                         diff_rank_seed: bool = False) -> DataLoader:
        return Runner.build_dataloader(
            complete_worker_init(dataloader, seed), seed, diff_rank_seed)

    def _applied(self) -> list[str]:
        """Names of the passes this config went through."""
        return sorted((self.cfg.get('turbo') or {}).get('applied', {}))

    def save_checkpoint(self, *args, meta: dict | None = None,
                        **kwargs) -> None:
        """As MMEngine's; notes the applied passes in the meta data."""
        meta = {**(meta or {}), _META_KEY: self._applied()}
        super().save_checkpoint(*args, meta=meta, **kwargs)

    def resume(self, filename: str, *args, **kwargs) -> None:
        """As MMEngine's; warns when the run was begun under another plan."""
        super().resume(filename, *args, **kwargs)
        before = set(self._last_meta.get(_META_KEY, []))
        now = set(self._applied())
        if before != now:
            parts = []
            if now - before:
                parts.append(f'new: {", ".join(sorted(now - before))}')
            if before - now:
                parts.append(f'gone: {", ".join(sorted(before - now))}')
            self.logger.log(
                logging.WARNING,
                f'{filename} was written under another mmturbox plan '
                f'({"; ".join(parts)}). The weights and states are the same; '
                'the loss curve may part within the parity class '
                f'{self.plan.parity!r}.')

    def load_checkpoint(self, *args, **kwargs) -> Mapping:
        checkpoint = super().load_checkpoint(*args, **kwargs)
        self._last_meta = checkpoint.get('meta') or {}
        return checkpoint
