"""Times and counts of stock and turbo come from where they should."""

import copy
import os

import pytest
import torch
from mmengine.structures import BaseDataElement

from mmturbox.analysis import bench
from mmturbox.analysis.audit import audit
from mmturbox.analysis.stepping import pair
from mmturbox.testing.toy import toy_config

SLOW = .004


def slow_config():
    cfg = toy_config('')
    # Two samples a batch.
    cfg.train_dataloader.dataset.delay = SLOW / 2
    return cfg


def test_rows_and_shares(tmp_path):
    with pair(slow_config(), str(tmp_path)) as drivers:
        timings = bench.time_runs(
            drivers, rounds=1, iterations=2, warmup=1, progress=lambda t: None)
        rows, boxes = bench.training_rows(drivers, timings)
    by_name = {r.name: r for r in rows}
    assert list(by_name)[:3] == [
        'iteration time', 'data wait', 'samples per second'
    ]
    assert {'host syncs', 'launches', 'uploads'} <= set(by_name)
    for timing in timings.values():
        assert len(timing.data) == len(timing.step) == len(timing.bare) == 2
        assert min(timing.data) >= SLOW
    total = by_name['iteration time']
    assert total.stock >= by_name['data wait'].stock >= SLOW * 1e3
    speed = by_name['samples per second']
    assert speed.stock == pytest.approx(2e3 / total.stock)
    assert speed.ratio == pytest.approx(total.ratio), 'above 1 is a gain'
    assert boxes == 6
    shares = bench.shares(timings['stock'])
    assert shares['data'] + shares['network'] == pytest.approx(1)


def test_counts_of_the_toy_are_those_made_by_hand(tmp_path):
    with pair(toy_config(''), str(tmp_path)) as drivers:
        result = audit(drivers, warmup=1)
    stock = {where.rpartition('/')[2].partition(':')[0]: number
                 for where, number, _ in result.stock.lines('sync')}
    # Two coordinates of 2 x 3 boxes; three logged losses; the gradient norm.
    assert stock == {
        'toy.py': 12,
        'message_hub.py': 3,
        'optimizer_wrapper.py': 1
    }
    # Two images and two box tensors.
    assert result.stock.uploads == 4
    assert result.boxes == (6, 6)
    assert result.turbo.syncs == 12, 'logging and clipping read nothing'
    assert result.turbo.launches < result.stock.launches
    assert {r.name: r.stock for r in result.rows}['host syncs'] == 16
    worst = result.lines()['stock']['sync'][0]
    assert worst[1:] == [12, 'int()']


def test_the_counted_iteration_does_not_log(tmp_path):
    cfg = toy_config('', **{'default_hooks.logger.interval': 2})
    with pair(cfg, str(tmp_path)) as (stock, _):
        stock.next()
        assert stock.logs_next()
        bench.count_iteration(stock)
        assert stock.runner.iter == 3


def test_boxes_of_a_batch_are_counted():
    element = BaseDataElement(gt_labels_3d=torch.zeros(3))
    element.attr_labels = torch.zeros(3)
    batch = dict(data_samples=[element, copy.deepcopy(element)])
    assert bench.num_boxes(batch) == 6
    assert bench.num_boxes(dict(inputs=torch.zeros(3))) == 0


@pytest.mark.parametrize('loop', [
    dict(by_epoch=True, max_epochs=9),
    dict(by_epoch=False, max_iters=99),
])
def test_data_workers_and_both_loops(tmp_path, loop):
    cfg = toy_config('')
    cfg.train_cfg = loop
    cfg.train_dataloader.num_workers = 1
    cfg.train_dataloader.sampler.type = 'InfiniteSampler'
    if loop['by_epoch']:
        cfg.train_dataloader.sampler.type = 'DefaultSampler'
    with pair(cfg, str(tmp_path)) as drivers:
        timings = bench.time_runs(drivers, 1, 1, 1, lambda text: None)
    assert all(min(t.iteration) > 0 for t in timings.values())
    files = [f for _, _, names in os.walk(tmp_path) for f in names]
    assert not [f for f in files if f.endswith('.pth')]
