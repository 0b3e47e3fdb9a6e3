"""The hook in a real run: same log, same checkpoint, fewer reads."""

import json
import os
from pathlib import Path

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn

import mmturbox.registry  # noqa: F401


class Toy(BaseModel):

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x, mode='loss'):
        y = self.fc(torch.stack(x))
        return {
            'loss_a': y.pow(2).mean(),
            'loss_b': y.abs().mean(),
            'share': (y > 0).float().mean()
        }


def train(work_dir, hook, name, iters=12, interval=5, **kwargs):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    data = [dict(x=x) for x in torch.randn(2 * iters, 4, generator=generator)]
    runner = Runner(
        model=Toy(),
        work_dir=str(work_dir),
        train_dataloader=dict(
            dataset=data,
            sampler=dict(type='DefaultSampler', shuffle=False),
            batch_size=2),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        optim_wrapper=dict(
            optimizer=dict(type='SGD', lr=0.1), clip_grad=dict(max_norm=1.)),
        default_hooks=dict(
            runtime_info=dict(type=hook),
            logger=dict(type='LoggerHook', interval=interval)),
        experiment_name=name,
        randomness=dict(seed=3),
        **kwargs)
    runner.train()
    return runner


def scalars(work_dir):
    file = next(Path(work_dir).glob('*/vis_data/scalars.json'))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [{k: v
             for k, v in row.items() if 'time' not in k} for row in rows]


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    out = {}
    for name, hook in (('stock', 'RuntimeInfoHook'),
                       ('turbo', 'mmturbox.RuntimeInfoHook')):
        path = tmp_path_factory.mktemp(name)
        out[name] = (path, train(path, hook, f'runtime-info-{name}'))
    return out


def test_logged_numbers_equal_stock(runs):
    stock, turbo = (scalars(runs[k][0]) for k in ('stock', 'turbo'))
    assert len(stock) > 2
    assert turbo == stock
    assert [list(r) for r in turbo] == [list(r) for r in stock]


def test_checkpoint_holds_stock_buffers_with_the_same_values(runs):
    loaded = {
        k: torch.load(path / 'epoch_2.pth', weights_only=False)
        ['message_hub']['log_scalars'] for k, (path, _) in runs.items()
    }
    assert list(loaded['turbo']) == list(loaded['stock'])
    for key, buffer in loaded['turbo'].items():
        assert type(buffer) is HistoryBuffer
        if 'time' not in key:
            for a, b in zip(buffer.data, loaded['stock'][key].data,
                            strict=True):
                assert a.dtype == b.dtype and (a == b).all()


@pytest.mark.parametrize('first, second', [
    ('RuntimeInfoHook', 'mmturbox.RuntimeInfoHook'),
    ('mmturbox.RuntimeInfoHook', 'RuntimeInfoHook'),
])
def test_a_run_resumes_under_the_other_hook(runs, tmp_path, first, second):
    source = 'stock' if first == 'RuntimeInfoHook' else 'turbo'
    path, straight = runs[source]
    # KF-C5: MMEngine loads its own checkpoints without weights_only only.
    os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'
    try:
        runner = train(
            tmp_path,
            second,
            f'resumed-{source}',
            resume=True,
            load_from=str(path / 'epoch_1.pth'))
    finally:
        del os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD']
    for key in ('train/loss', 'train/share', 'train/lr', 'train/grad_norm'):
        ours = runner.message_hub.get_scalar(key).data[0]
        expected = straight.message_hub.get_scalar(key).data[0]
        assert len(ours) == 24
        assert (ours == expected).all()


def test_no_loss_is_read_in_an_iteration_that_does_not_log(
        tmp_path, monkeypatch):
    # KF-D8
    calls = []
    for name in ('item', 'tolist'):
        stock = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name,
            lambda self, stock=stock: (calls.append(self.shape), stock(self))
            [1])
    train(
        tmp_path / 'turbo', 'mmturbox.RuntimeInfoHook', 'reads-turbo',
        interval=1000)
    turbo = len(calls)
    calls.clear()
    train(tmp_path / 'stock', 'RuntimeInfoHook', 'reads-stock', interval=1000)
    # Four keys in 24 iterations; both save twice, which reads the histories.
    assert len(calls) - turbo >= 4 * 24 - 2
