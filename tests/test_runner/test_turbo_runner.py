"""TurboRunner: the plan at start, resume both ways, clear refusals."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
import torch
import torch.nn as nn
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.runner import Runner

from mmturbox import enable
from mmturbox.passes.base import ConfigPass, Set
from mmturbox.registry import PASSES
from mmturbox.runner import TurboRunner


class Net(BaseModel):

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, y=None, mode='tensor', **kwargs):
        out = self.layer(torch.stack(x))
        if mode == 'loss':
            return dict(loss=(out - torch.stack(y)).square().mean())
        return out


class Points(BaseDataset):

    def load_data_list(self):
        gen = torch.Generator().manual_seed(0)
        return [
            dict(
                x=torch.randn(4, generator=gen),
                y=torch.randn(4, generator=gen)) for _ in range(8)
        ]


@pytest.fixture(autouse=True)
def names():
    # A config that another test has read may have switched mmturbox on.
    enable.undo()
    MODELS.register_module(name='_Net', module=Net, force=True)
    DATASETS.register_module(name='_Points', module=Points, force=True)
    yield
    MODELS.module_dict.pop('_Net')
    DATASETS.module_dict.pop('_Points')


def config(work_dir, epochs=1, **more):
    return Config(
        dict(
            model=dict(type='_Net'),
            work_dir=str(work_dir),
            train_dataloader=dict(
                dataset=dict(type='_Points'),
                sampler=dict(type='DefaultSampler', shuffle=True),
                batch_size=2,
                num_workers=0),
            train_cfg=dict(by_epoch=True, max_epochs=epochs),
            optim_wrapper=dict(
                optimizer=dict(type='AdamW', lr=0.01),
                clip_grad=dict(max_norm=1.)),
            param_scheduler=dict(type='MultiStepLR', milestones=[1, 2]),
            randomness=dict(seed=1),
            # Runs of one second would share a logger.
            experiment_name=uuid4().hex,
            default_hooks=dict(checkpoint=dict(type='CheckpointHook')),
            **more))


def test_plan_is_logged_written_and_in_the_dumped_config(tmp_path):
    runner = TurboRunner.from_cfg(config(tmp_path))
    names = [s.name for s in runner.plan.applied]
    assert 'optim_wrapper' in names
    saved = json.loads((tmp_path / 'turbo_plan.json').read_text())
    assert [s['name'] for s in saved['steps'] if s['status'] == 'applied'
            ] == names
    dumped = Config.fromfile(next(tmp_path.glob('*.py')))
    assert list(dumped.turbo.applied) == names
    log = next(Path(tmp_path).glob('*/*.log')).read_text()
    assert 'mmturbox plan' in log and 'optim_wrapper.type' in log


def test_the_config_of_the_caller_is_not_edited(tmp_path):
    cfg = config(tmp_path)
    before = cfg.to_dict()
    TurboRunner.from_cfg(cfg)
    assert cfg.to_dict() == before


def two_parts(first, second, work_dir):
    """Train an epoch under ``first``, resume to three under ``second``."""
    first.from_cfg(config(work_dir)).train()
    runner = second.from_cfg(config(work_dir, epochs=3, resume=True))
    runner.train()
    return runner


@pytest.mark.parametrize('first, second', [(Runner, TurboRunner),
                                           (TurboRunner, Runner),
                                           (TurboRunner, TurboRunner)])
def test_checkpoints_resume_both_ways(tmp_path, first, second):
    stock = two_parts(Runner, Runner, tmp_path / 'stock')
    mixed = two_parts(first, second, tmp_path / 'mixed')
    assert mixed.iter == stock.iter == 12
    for key, value in stock.model.state_dict().items():
        torch.testing.assert_close(
            mixed.model.state_dict()[key], value, rtol=1e-5, atol=1e-6)


def test_a_changed_plan_warns_on_resume(tmp_path):
    Runner.from_cfg(config(tmp_path)).train()
    runner = TurboRunner.from_cfg(
        config(tmp_path, epochs=2, resume=True,
               load_from=str(tmp_path / 'epoch_1.pth')))
    runner.train()
    log = '\n'.join(p.read_text() for p in tmp_path.glob('*/*.log'))
    assert 'another mmturbox plan' in log and 'new: ' in log


def test_mmturbox_0_is_the_stock_run_of_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setenv('MMTURBOX', '0')
    runner = TurboRunner.from_cfg(config(tmp_path))
    assert 'turbo' not in runner.cfg and not runner.plan.applied
    assert not (tmp_path / 'turbo_plan.json').exists()
    assert type(runner.build_optim_wrapper(
        runner.optim_wrapper)).__module__.startswith('mmengine')


def test_an_added_pass_is_one_class(tmp_path):

    class Wider(ConfigPass):
        """Give the toy another learning rate."""
        name = 'wider'
        side = 'system'
        parity = 'bitwise'
        changes = ('optim_wrapper.optimizer.lr', )

        def plan(self, cfg, env):
            return [Set('optim_wrapper.optimizer.lr', 0.5)]

    PASSES.register_module(module=Wider)
    try:
        runner = TurboRunner.from_cfg(config(tmp_path))
    finally:
        PASSES.module_dict.pop('Wider')
    assert runner.cfg.optim_wrapper.optimizer.lr == 0.5
    assert runner.build_optim_wrapper(
        runner.optim_wrapper).optimizer.defaults['lr'] == 0.5


def test_bad_options_stop_before_anything_is_built(tmp_path):
    with pytest.raises(ValueError, match='did you mean'):
        TurboRunner.from_cfg(
            config(tmp_path / 'w', turbo=dict(optim_wraper=True)))
    assert not (tmp_path / 'w').exists() or not list(
        (tmp_path / 'w').iterdir())


def test_order_of_each_loader_is_agreed_on_before_the_first_step(
        tmp_path, monkeypatch):
    from mmturbox.runner import turbo_runner
    seen = []

    def disagree(name, dataset):
        seen.append((name, type(dataset).__name__))
        if name == 'val_dataloader':
            raise RuntimeError(f'{name}: another order')

    monkeypatch.setattr(turbo_runner, 'agree_on_order', disagree)
    cfg = config(tmp_path)
    cfg.val_dataloader = dict(
        cfg.train_dataloader, sampler=dict(type='DefaultSampler'))
    cfg.val_cfg = dict()
    cfg.val_evaluator = dict(type='DumpResults', out_file_path='x.pkl')
    runner = TurboRunner.from_cfg(cfg)
    with pytest.raises(RuntimeError, match='val_dataloader: another'):
        runner.train()
    assert seen == [('train_dataloader', 'Points'),
                    ('val_dataloader', 'Points')]
    assert runner.iter == 0
