"""Verify agrees where turbo is right and catches passes that are not."""

import os

import numpy as np
import pytest
import torch

from mmturbox.analysis.lockstep import gradient_gap, update_gap
from mmturbox.analysis.verify import (
    bisect,
    find_culprits,
    judge_free_run,
    run_lockstep,
    verify,
)
from mmturbox.passes.base import ConfigPass, Set
from mmturbox.registry import DATASETS, MODELS, PASSES
from mmturbox.testing.toy import ToyBoxes, ToyDetector, toy_config


class FastToyDetector(ToyDetector):
    """Targets of all boxes at once, equal bits."""

    def targets(self, heat, data_samples):
        target = torch.zeros_like(heat)
        boxes = torch.stack([s.bboxes for s in data_samples]).long()
        rows = torch.arange(len(boxes), device=heat.device)[:, None]
        target[rows, 0, boxes[..., 1], boxes[..., 0]] = 1
        return target


class ShiftedToyBoxes(ToyBoxes):
    """Flips other samples than stock."""

    def __getitem__(self, index):
        np.random.rand()
        return super().__getitem__(index)


def make_pass(path, value, parity='bitwise', side='model'):

    class Pass(ConfigPass):

        def plan(self, cfg, env):
            return [Set(path, value)]

    Pass.side, Pass.parity, Pass.changes = side, parity, (path, )
    return Pass


@pytest.fixture
def add_pass():
    """Registers passes for one test; built-in ones are left in."""
    PASSES.import_from_location()
    names = []
    for registry, kind in ((MODELS, FastToyDetector),
                           (DATASETS, ShiftedToyBoxes)):
        registry.register_module(module=kind, force=True)

    def add(name, *args, **kwargs):
        made = make_pass(*args, **kwargs)
        made.name = name
        PASSES.register_module(name=name, module=made)
        names.append(name)

    yield add
    for name in names:
        del PASSES.module_dict[name]
    del MODELS.module_dict['FastToyDetector']
    del DATASETS.module_dict['ShiftedToyBoxes']


def quiet(text):
    pass


def config(**turbo):
    cfg = toy_config('')
    # The built-in passes have tests of their own.
    cfg.turbo = dict(optim_wrapper=False, **turbo)
    return cfg


def failed(verdict):
    return [c.name for c in verdict.checks if not c.agrees]


def test_equal_runs_agree_bitwise(tmp_path, add_pass):
    add_pass('toy_targets', 'model.type', 'mmturbox.FastToyDetector')
    verdict = verify(config(), str(tmp_path), 4, quiet)
    assert 'toy_targets' in verdict.passes
    assert verdict.parity == 'bitwise'
    assert verdict.agrees
    assert verdict.largest_gap == 0
    assert set(verdict.terms) == {'loss', 'loss_heat', 'loss_offset'}


def test_the_built_in_passes_agree_on_the_toy(tmp_path):
    verdict = verify(toy_config(''), str(tmp_path), 4, quiet)
    assert verdict.passes, 'something is applied'
    assert verdict.agrees, verdict.checks


def test_a_loss_wrong_by_1e_4_is_caught(tmp_path, add_pass):
    add_pass('wrong', 'model.loss_weight', 1 + 1e-4, 'close')
    verdict, _ = run_lockstep(config(), str(tmp_path), 3, quiet)
    assert not verdict.agrees
    assert failed(verdict) == ['loss', 'gradient']
    (loss, ) = [c for c in verdict.checks if c.name == 'loss']
    assert loss.gap == pytest.approx(1e-4, rel=.01)


def test_a_rounding_difference_is_close_but_not_bitwise(tmp_path, add_pass):
    add_pass('rounded', 'model.loss_weight', 1 + 1e-6, 'close')
    verdict, _ = run_lockstep(config(), str(tmp_path), 3, quiet)
    assert verdict.agrees, verdict.checks
    PASSES.module_dict['rounded'].parity = 'bitwise'
    assert not run_lockstep(config(), str(tmp_path), 3, quiet)[0].agrees


def test_another_batch_is_caught(tmp_path, add_pass):
    add_pass(
        'shifted',
        'train_dataloader.dataset.type',
        'mmturbox.ShiftedToyBoxes',
        side='data')
    verdict, _ = run_lockstep(config(), str(tmp_path), 3, quiet)
    assert 'batch' in failed(verdict)


@pytest.mark.parametrize('path, value, kind', [
    ('optim_wrapper.optimizer.lr', 1.1e-3, 'settings'),
    ('optim_wrapper.clip_grad.max_norm', .05, 'parameter'),
    ('optim_wrapper.optimizer.amsgrad', True, 'settings'),
])
def test_another_step_is_caught(tmp_path, add_pass, path, value, kind):
    add_pass('stepping', path, value, 'close')
    verdict, _ = run_lockstep(config(), str(tmp_path), 3, quiet)
    assert kind in failed(verdict)


def test_bisect_names_the_broken_pass(tmp_path, add_pass):
    add_pass('toy_targets', 'model.type', 'mmturbox.FastToyDetector')
    add_pass('broken', 'model.loss_weight', 1.001, 'close')
    add_pass('harmless', 'default_hooks.logger.interval', 10, side='system')
    cfg = config()
    assert not run_lockstep(cfg, str(tmp_path), 2, quiet)[0].agrees
    said = []
    assert bisect(
        cfg, str(tmp_path), 2, progress=said.append) == ['broken']
    assert any('broken' in line for line in said)


def test_bisect_names_a_pass_that_raises(tmp_path, add_pass):
    add_pass('raises', 'model.no_such_option', 1)
    found = bisect(config(), str(tmp_path), 1, progress=quiet)
    assert found == ['raises']


def test_bisect_needs_few_runs_and_finds_pairs():
    tried = []

    def breaks(on):
        tried.append(on)
        return 'c' in on

    assert find_culprits(list('abcdefgh'), breaks) == ['c']
    assert len(tried) <= 7
    both = find_culprits(list('abcdef'), lambda on: {'b', 'e'} <= set(on))
    assert both == ['b', 'e']
    assert find_culprits(list('ab'), lambda on: True) == []


def test_a_statistical_plan_is_judged_by_the_free_run(tmp_path, add_pass):
    add_pass('loose', 'model.loss_weight', 1.01, 'statistical')
    cfg = config(loose=True)
    verdict = verify(cfg, str(tmp_path), 6, quiet)
    assert verdict.parity == 'statistical'
    judged = [c.name for c in verdict.checks if c.judged]
    assert judged == ['free run']
    assert verdict.agrees
    PASSES.module_dict['loose'].plan = lambda self, cfg, env: [
        Set('model.loss_weight', 1.5)
    ]
    assert not verify(cfg, str(tmp_path), 6, quiet).agrees


def test_the_free_run_may_part_three_times_as_far_as_nudged_stock():
    stock = [1., 1., 1., 1.]

    def verdict(turbo, nudged):
        return judge_free_run(
            'close', {
                'stock': stock,
                'turbo free': [1., 1., 1., 1 + turbo],
                'nudged 1': [1., 1., 1., 1 + nudged]
            }).agrees

    assert verdict(2.9e-2, 1e-2)
    assert not verdict(3.1e-2, 1e-2)
    assert verdict(5e-5, 0.), 'rounding alone is granted'
    assert not verdict(float('nan'), 1e-2)


def test_gradient_gap_is_relative_to_the_norm():
    want = torch.tensor([3., 4., 0.])
    assert gradient_gap(want, want, 0.) == 0
    wrong = want + torch.tensor([0., 0., .05])
    assert gradient_gap(want, wrong, 1.) == pytest.approx(.01)
    assert gradient_gap(want, wrong, 50.) == pytest.approx(.001)
    bad = torch.tensor([3., float('nan'), 0.])
    assert gradient_gap(want, bad, 1.) == float('inf')
    assert gradient_gap(bad, bad.clone(), 1.) == 0


def test_update_gap_is_relative_to_the_update():
    before = np.float32([1., -1.])
    want = before - np.float32([1e-3, 0])
    assert update_gap(before, want, want) == 0
    wrong = before - np.float32([1.1e-3, 0])
    assert update_gap(before, want, wrong) == pytest.approx(.1, rel=.01)
    rounding = np.nextafter(want, np.float32(2))
    assert 0 < update_gap(before, want, rounding) < 1e-5
    assert update_gap(before, want, want * np.nan) == np.inf


def test_no_checkpoints_and_no_workers_are_left(tmp_path):
    run_lockstep(config(), str(tmp_path), 1, quiet)
    files = [f for _, _, names in os.walk(tmp_path) for f in names]
    assert files
    assert not [f for f in files if f.endswith('.pth')]
