"""The template holds what every project has to show."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, RUNNERS

CONFIG = (
    Path(__file__).parents[1] / 'configs' /
    'point-regressor_tiny_1xb8_random.py')


def train(work_dir, monkeypatch, stock):
    """The runner after training and its logged losses."""
    monkeypatch.setenv('MMTURBOX', '0' if stock else '1')
    cfg = Config.fromfile(CONFIG)
    cfg.work_dir = str(work_dir)
    cfg.experiment_name = f'{work_dir.name}-{stock}'
    cfg.runner_type = 'mmturbox.TurboRunner'
    runner = RUNNERS.build(cfg)
    runner.train()
    history = runner.message_hub.get_scalar('train/loss')
    return runner, history.data[0]


def test_loss_falls_and_turbo_agrees_with_stock(tmp_path, monkeypatch):
    stock, expected = train(tmp_path / 'stock', monkeypatch, stock=True)
    turbo, losses = train(tmp_path / 'turbo', monkeypatch, stock=False)
    assert turbo.plan.applied and not stock.plan.applied
    assert expected[-1] < .1 * expected[0]
    assert losses == pytest.approx(expected, rel=1e-3)
    weights = turbo.model.state_dict()
    for name, value in stock.model.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)


def test_checkpoint_loads_and_inference_returns_one_centre_a_sample():
    cfg = Config.fromfile(CONFIG)
    model = MODELS.build(cfg.model)
    twin = MODELS.build(cfg.model)
    twin.load_state_dict(model.state_dict())
    sample = DATASETS.build(cfg.train_dataloader.dataset)[0]
    batch = {k: v[None] for k, v in sample.items()}
    (centre, ) = twin(**batch, mode='predict')
    assert centre.shape == (3, )
    assert torch.equal(centre, model(**batch)[0])
