"""Inference of stock and turbo is timed and compared."""

import pytest
import torch

from mmturbox.analysis.inference import benchmark_test, same_detections
from mmturbox.testing.toy import ToyDetector, toy_config


def test_rows_and_same_detections(tmp_path):
    rows, extra = benchmark_test(toy_config(''), str(tmp_path), 8, 2)
    by_name = {r.name: r for r in rows}
    assert {
        'latency p50', 'latency p99', 'samples per second', 'host syncs'
    } <= set(by_name)
    assert by_name['latency p99'].stock >= by_name['latency p50'].stock > 0
    assert by_name['host syncs'].stock == 0
    assert by_name['uploads'].stock == 2, 'image and boxes'
    assert extra == dict(same_detections=True, detection_gap=0.)


def test_host_reads_of_prediction_are_counted(tmp_path, monkeypatch):
    forward = ToyDetector.forward

    def reading(self, inputs, data_samples=None, mode='tensor'):
        inputs[0].sum().item()
        return forward(self, inputs, data_samples, mode)

    monkeypatch.setattr(ToyDetector, 'forward', reading)
    rows, _ = benchmark_test(toy_config(''), str(tmp_path), 2, 1)
    assert {r.name: r.stock for r in rows}['host syncs'] == 1


def test_detections_that_differ_are_not_the_same():
    want = [dict(scores=torch.tensor([.9, .5]), labels=torch.tensor([1, 2]))]
    close = [dict(scores=want[0]['scores'] + 1e-6, labels=want[0]['labels'])]
    other = [dict(scores=want[0]['scores'], labels=torch.tensor([1, 3]))]
    fewer = [dict(scores=want[0]['scores'][:1], labels=want[0]['labels'][:1])]
    assert same_detections(want, want, 'bitwise')[0]
    assert same_detections(want, close, 'close')[0]
    assert not same_detections(want, close, 'bitwise')[0]
    assert not same_detections(want, other, 'close')[0]
    assert not same_detections(want, fewer, 'close')[0]


def test_a_config_without_a_test_part_is_refused(tmp_path):
    cfg = toy_config('')
    for key in ('test_dataloader', 'test_cfg', 'test_evaluator'):
        cfg[key] = None
    with pytest.raises(ValueError, match='test_dataloader'):
        benchmark_test(cfg, str(tmp_path))
