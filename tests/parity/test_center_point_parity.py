"""Twenty seeded steps of CenterPoint with and without the model passes.

Each step starts turbo from stock's state: two free runs that differ in
rounding alone part within a few steps.
"""

import copy

import pytest
import torch
from mmengine.config import Config

from mmturbox.analysis.counting import Counter
from mmturbox.passes.base import Environment
from mmturbox.passes.driver import make_plan
from mmturbox.testing.center_point import (
    center_point_config,
    import_mmdet3d,
    random_batch,
)

PASSES = ('center_head', 'losses', 'pillar_encoder', 'pillars_scatter',
          'voxelize')
STEPS = 20


@pytest.fixture(scope='module')
def models():
    """Builds stock and turbo with the passes named, and their parity."""
    import_mmdet3d()
    from mmdet3d.registry import MODELS
    base = center_point_config()

    def build(*names):
        cfg = Config(copy.deepcopy(base.to_dict()))
        cfg.turbo = {name: name in names for name in PASSES}
        plan = make_plan(cfg, Environment())
        assert {step.name for step in plan.applied
                if step.side == 'model'} == set(names)
        plan.apply(cfg)
        assert not [step for step in make_plan(cfg, Environment()).applied
                    if step.side == 'model']
        stock, turbo = (MODELS.build(copy.deepcopy(one.model))
                        for one in (base, cfg))
        assert list(stock.state_dict()) == list(turbo.state_dict())
        bitwise = all(step.parity == 'bitwise' for step in plan.applied
                      if step.side == 'model')
        return stock.train(), turbo.train(), bitwise

    return build


def forward_backward(model, batch):
    model.zero_grad()
    data = model.data_preprocessor(copy.deepcopy(batch), True)
    loss, logs = model.parse_losses(model(**data, mode='loss'))
    loss.backward()
    return logs, {n: p.grad for n, p in model.named_parameters()}


@torch.no_grad()
def gaps(got, expected, part=0.):
    """Relative differences; values below ``part`` of the largest one are
    taken relative to that."""
    assert got.keys() == expected.keys()
    floor = part * max(float(v.norm()) for v in expected.values())
    return {
        name: float((got[name] - value).norm()) / max(
            float(value.norm()), floor, 1e-12)
        for name, value in expected.items()
    }


@pytest.mark.parametrize('names', [*((name, ) for name in PASSES), PASSES],
                         ids='+'.join)
def test_twenty_steps_agree_with_stock(models, names):
    stock, turbo, bitwise = models(*names)
    optimizer = torch.optim.AdamW(stock.parameters(), lr=1e-3)
    first = last = None
    for step in range(STEPS):
        turbo.load_state_dict(stock.state_dict())
        # One batch has no boxes: KF-G3.
        batch = random_batch(2, 0 if step == 7 else 15, 800, seed=step % 4)
        logs, grads = forward_backward(stock, batch)
        got_logs, got_grads = forward_backward(turbo, batch)
        limit = 0. if bitwise else 1e-5
        worst = max(gaps(got_logs, logs).items(), key=lambda g: g[1])
        assert worst[1] <= limit, (step, worst)
        worst = max(gaps(got_grads, grads, .05).items(), key=lambda g: g[1])
        assert worst[1] <= limit, (step, worst)
        for ours, theirs in zip(
                turbo.buffers(), stock.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
        optimizer.step()
        first = first or float(logs['loss'])
        last = float(logs['loss'])
    assert last < first


def test_detections_agree_with_stock(models):
    stock, turbo, _ = models(*PASSES)
    batch = random_batch(2, 15, 800, seed=0)
    optimizer = torch.optim.AdamW(stock.parameters(), lr=3e-3)
    for _ in range(10):
        forward_backward(stock, batch)
        optimizer.step()
    turbo.load_state_dict(stock.state_dict())
    results = []
    for model in (stock.eval(), turbo.eval()):
        model.pts_bbox_head.test_cfg.score_threshold = .05
        data = model.data_preprocessor(copy.deepcopy(batch), False)
        with torch.no_grad():
            results.append(model(**data, mode='predict'))
    found = 0
    for ours, theirs in zip(*results[::-1], strict=True):
        ours, theirs = ours.pred_instances_3d, theirs.pred_instances_3d
        assert torch.equal(ours.labels_3d, theirs.labels_3d)
        torch.testing.assert_close(
            ours.scores_3d, theirs.scores_3d, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(
            ours.bboxes_3d.tensor, theirs.bboxes_3d.tensor, rtol=1e-3,
            atol=1e-4)
        found += len(ours)
    assert found > 0


def test_whole_step_reads_once(models):
    stock, turbo, _ = models(*PASSES)
    batch = random_batch(2, 50, 800, seed=0)
    counts = []
    for model in (stock, turbo):
        forward_backward(model, batch)
        model.zero_grad()
        data = copy.deepcopy(batch)
        with Counter() as counter:
            data = model.data_preprocessor(data, True)
            losses = model(**data, mode='loss')
            sum(losses.values()).backward()
        counts.append(counter)
    assert counts[0].syncs > 1000
    # The number of voxels.
    assert counts[1].syncs == 1
    assert counts[1].launches <= .06 * counts[0].launches
