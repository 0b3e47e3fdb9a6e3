"""Drivers train as ``runner.train()`` does, and do not disturb each other."""

import os

import numpy as np
import psutil
import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.runner import Runner

from mmturbox.analysis.stepping import StepDriver, pair
from mmturbox.testing.toy import toy_config


@pytest.fixture
def driver(tmp_path):
    driver = StepDriver(toy_config(''), False, str(tmp_path))
    yield driver
    driver.close()


def losses(driver, number):
    return [
        float(driver.next() is not None and driver.outputs['loss'])
        for _ in range(number)
    ]


def test_steps_equal_an_ordinary_run(tmp_path, monkeypatch):
    cfg = toy_config(str(tmp_path / 'run'), **{'train_cfg.max_epochs': 3})
    cfg.randomness = dict(seed=0)
    monkeypatch.setenv('MMTURBOX', '0')
    runner = Runner.from_cfg(cfg)
    runner.train()
    want = runner.message_hub.get_scalar('train/loss').data[0]
    monkeypatch.delenv('MMTURBOX')
    driver = StepDriver(cfg, False, str(tmp_path / 'steps'))
    got = losses(driver, 12)
    driver.close()
    assert np.allclose(want, got, rtol=0, atol=0)
    lrs = runner.optim_wrapper.get_lr()['lr'], driver.runner.optim_wrapper
    assert lrs[0] == lrs[1].get_lr()['lr'], 'the schedule is stepped'


def test_two_drivers_taking_turns_equal_each_alone(tmp_path):
    cfg = toy_config('')
    alone = StepDriver(cfg, False, str(tmp_path / 'a'))
    want = losses(alone, 6)
    alone.close()
    with pair(cfg, str(tmp_path)) as (stock, turbo):
        both = [(losses(stock, 1)[0], losses(turbo, 1)[0]) for _ in range(6)]
    assert [a for a, _ in both] == want
    assert [b for _, b in both] == pytest.approx(want, rel=1e-3)


def test_callers_random_state_and_globals_stay(tmp_path):
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    driver = StepDriver(toy_config(''), False, str(tmp_path))
    driver.next()
    assert torch.equal(torch.rand(2), want)
    name = driver.runner.message_hub.instance_name
    with driver.active():
        assert MessageHub.get_current_instance().instance_name == name
    driver.close()
    assert not MessageHub.check_instance_created(name)


def test_workers_are_held_while_another_driver_works(tmp_path):
    cfg = toy_config(
        '', **{
            'train_dataloader.num_workers': 1,
            'train_dataloader.persistent_workers': True
        })
    driver = StepDriver(cfg, False, str(tmp_path))
    driver.next()
    (worker, ) = driver._workers
    assert worker.status() == psutil.STATUS_STOPPED
    with driver.active():
        assert worker.status() != psutil.STATUS_STOPPED
    driver.close()
    assert not worker.is_running() or worker.status() == 'zombie'


def test_iteration_based_loops_are_driven_too(tmp_path):
    cfg = toy_config('')
    cfg.train_cfg = dict(by_epoch=False, max_iters=20)
    cfg.train_dataloader.sampler = dict(type='InfiniteSampler')
    driver = StepDriver(cfg, False, str(tmp_path))
    losses(driver, 6)
    assert driver.runner.iter == 6
    driver.close()


def test_it_is_known_which_iteration_logs(tmp_path):
    cfg = toy_config('', **{'default_hooks.logger.interval': 3})
    cfg.train_dataloader.dataset.num_samples = 16
    driver = StepDriver(cfg, False, str(tmp_path))
    logs = []
    for _ in range(8):
        logs.append(driver.logs_next())
        driver.next()
    driver.close()
    assert logs == [False, False, True, False, False, True, False, True]


def test_no_checkpoint_is_written(driver):
    losses(driver, 9)  # two epochs of four
    files = os.listdir(driver.runner.work_dir)
    assert not [f for f in files if f.endswith('.pth')]


def test_turbo_under_mmturbox_0_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv('MMTURBOX', '0')
    with pytest.raises(RuntimeError, match='unset'):
        StepDriver(toy_config(''), True, str(tmp_path))
