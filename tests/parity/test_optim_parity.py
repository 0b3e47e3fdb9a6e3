"""20 steps beside MMEngine's OptimWrapper, each from stock's state."""

import copy
from itertools import count

import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.optim import LinearLR, MultiStepLR, build_optim_wrapper
from torch import nn

from mmturbox.analysis.counting import Counter
from mmturbox.hooks.deferred_scalars import pending_of

STEPS = 20
ADAMW = dict(type='AdamW', lr=0.01, weight_decay=0.05)
SGD = dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=1e-4)
PARAMWISE = dict(
    bias_decay_mult=0.,
    norm_decay_mult=0.,
    custom_keys={'blocks.1': dict(lr_mult=0.1, decay_mult=2.)})
_names = count()


class Net(nn.Module):

    def __init__(self, blocks=4, width=16):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
            for _ in range(blocks))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Run:

    def __init__(self, kind, double=False, **kwargs):
        self.hub = MessageHub.get_instance(f'parity-optim-{next(_names)}')
        torch.manual_seed(0)
        self.model = Net()
        if double:
            self.model.double()
        self.wrapper = build_optim_wrapper(self.model,
                                           dict(type=kind, **kwargs))
        self.wrapper.initialize_count_status(self.model, 0, STEPS)
        self.schedulers = [
            LinearLR(self.wrapper, 0.1, by_epoch=False, end=8),
            MultiStepLR(self.wrapper, [12, 16], by_epoch=False)
        ]

    def step(self, i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(8, 16, generator=generator)
        out = self.model(x.to(self.model.head.weight.dtype))
        self.wrapper.update_params(5 * (out - 1).pow(2).mean())
        for scheduler in self.schedulers:
            scheduler.step()

    def take_state(self, other):
        self.model.load_state_dict(other.model.state_dict())
        grads = [p.grad for p in other.model.parameters()]
        for p, grad in zip(self.model.parameters(), grads, strict=True):
            p.grad = None if grad is None else grad.clone()
        self.wrapper.load_state_dict(
            copy.deepcopy(other.wrapper.state_dict()))


def pair(**kwargs):
    return Run('OptimWrapper', **copy.deepcopy(kwargs)), Run(
        'mmturbox.OptimWrapper', **copy.deepcopy(kwargs))


CLIPS = [
    None,
    dict(max_norm=0.5, norm_type=2),
    dict(max_norm=1e9),
    dict(max_norm=2.5, norm_type=1),
    dict(max_norm=0.05, norm_type='inf'),
    dict(type='value', clip_value=0.01)
]
OPTIMIZERS = [
    SGD,
    dict(type='Adam', lr=0.01, amsgrad=True),
    dict(type='SGD', lr=0.02, momentum=0.9, nesterov=True),
    dict(type='Adagrad', lr=0.02)
]


@pytest.mark.parametrize('clip', CLIPS, ids=str)
def test_lockstep_under_every_clipping(clip):
    check(*pair(optimizer=ADAMW, paramwise_cfg=PARAMWISE, clip_grad=clip))


@pytest.mark.parametrize('optimizer', OPTIMIZERS, ids=lambda o: o['type'])
@pytest.mark.parametrize('paramwise', [None, dict(bias_lr_mult=2.)])
def test_lockstep_of_every_optimizer(optimizer, paramwise):
    check(*pair(
        optimizer=optimizer,
        paramwise_cfg=paramwise,
        clip_grad=dict(max_norm=0.5)))


@pytest.mark.parametrize('counts', [2, 3])
@pytest.mark.parametrize('clip', [None, dict(max_norm=0.5)])
def test_lockstep_with_accumulation(counts, clip):
    # 20 is no multiple of 3: the last window is shorter (KF-D6).
    check(*pair(
        optimizer=ADAMW,
        accumulative_counts=counts,
        paramwise_cfg=PARAMWISE,
        clip_grad=clip))


def test_lockstep_in_double_precision():
    stock, ours = pair(
        optimizer=ADAMW, clip_grad=dict(max_norm=0.5), double=True)
    assert ours.wrapper._fused
    check(stock, ours, rtol=1e-12)


def check(stock, ours, rtol=1e-5):
    for i in range(STEPS):
        ours.take_state(stock)
        before = [p.detach().clone() for p in stock.model.parameters()]
        stock.step(i)
        ours.step(i)
        assert ours.wrapper.get_lr() == stock.wrapper.get_lr()
        for old, p, q in zip(before, stock.model.parameters(),
                             ours.model.parameters(), strict=True):
            # Of the update, which is small beside the weight.
            scale = (p - old).abs().max().item()
            gap = (p - q).abs().max().item()
            eps = torch.finfo(p.dtype).eps * p.abs().max().item()
            assert gap <= rtol * scale + eps
    if stock.wrapper.clip_grad_kwargs and stock.wrapper.grad_name == \
            'grad_norm':
        logged = [
            r.hub.get_scalar('train/grad_norm').data[0]
            for r in (stock, ours)
        ]
        assert (logged[0] == logged[1]).all()


def count_step(run):
    for i in range(3):
        run.step(i)
    x = torch.randn(8, 16)
    with Counter() as counter:
        for entry in run.wrapper.optimizer.state.values():
            if 'step' in entry and not run.wrapper.param_groups[0]['fused']:
                counter.mark_host([entry['step']])
        loss = run.model(x).mean()
        forward = counter.launches
        run.wrapper.backward(loss)
        backward = counter.launches
        run.wrapper.step()
        run.wrapper.zero_grad()
    return counter, counter.launches - backward, forward


@pytest.mark.parametrize('clip', [
    dict(max_norm=0.5),
    dict(type='value', clip_value=0.1), None
], ids=str)
@pytest.mark.parametrize('optimizer', [ADAMW, SGD], ids=lambda o: o['type'])
def test_no_host_read_and_few_launches_in_a_step(optimizer, clip):
    # KF-D8
    kwargs = dict(
        optimizer=optimizer, paramwise_cfg=PARAMWISE, clip_grad=clip)
    stock, ours = pair(**kwargs)
    counter, launches, _ = count_step(ours)
    assert counter.syncs == 0, counter.lines('sync')
    _, stock_launches, _ = count_step(stock)
    assert launches * 4 < stock_launches
    if clip and 'max_norm' in clip:
        assert ours.hub.get_scalar('train/grad_norm').current() > 0
        assert not pending_of(ours.hub)._items
