import pytest
import torch
from mmengine.config import Config

from mmturbox.passes.base import Declined, Environment, Set
from mmturbox.passes.edits import apply_edits
from mmturbox.passes.optim_wrapper import FusedOptim

TYPE = Set('optim_wrapper.type', 'mmturbox.OptimWrapper')
ADAMW = dict(type='AdamW', lr=1e-3)


def config(**wrapper):
    wrapper.setdefault('optimizer', dict(ADAMW))
    return Config(dict(optim_wrapper=wrapper))


def plan(cfg, device='cpu', **options):
    return FusedOptim().plan(cfg, Environment(device=device),
                             **{**FusedOptim.options, **options})


@pytest.mark.parametrize('wrapper', [
    {}, dict(type='OptimWrapper'), dict(type='mmengine.OptimWrapper'),
    dict(constructor='LayerDecayOptimWrapperConstructor',
         paramwise_cfg=dict(decay_rate=0.7)),
    dict(optimizer=dict(type=torch.optim.SGD, lr=1., momentum=0.9)),
    dict(optimizer=dict(type='Adagrad', lr=1.)),
    dict(optimizer=dict(type='AdamW', lr=1., fused=True))
])
def test_only_the_type_changes(wrapper):
    assert plan(config(**wrapper)) == [TYPE]


def test_tied_parameters_are_put_in_one_group():
    # KF-D10
    cfg = config(paramwise_cfg=dict(custom_keys={}, norm_decay_mult=0.))
    edits = plan(cfg)
    assert edits == [
        TYPE, Set('optim_wrapper.paramwise_cfg.bypass_duplicate', True)
    ]
    cfg = config(paramwise_cfg=dict(bypass_duplicate=False))
    assert plan(cfg) == [TYPE]


def test_options_become_arguments_where_they_differ():
    assert plan(config(), on_nonfinite='raise', merge=False) == [
        TYPE,
        Set('optim_wrapper.merge', False),
        Set('optim_wrapper.on_nonfinite', 'raise')
    ]
    with pytest.raises(ValueError, match='turbo.optim_wrapper.on_nonfinite'):
        plan(config(), on_nonfinite='ignore')


@pytest.mark.parametrize('cfg, device, word', [
    (Config({}), 'cpu', 'no optim_wrapper'),
    (config(type='AmpOptimWrapper'), 'cpu', 'AmpOptimWrapper'),
    (config(type='mine.OptimWrapper'), 'cpu', 'mine.OptimWrapper'),
    (Config(
        dict(
            optim_wrapper=dict(
                constructor='MultiOptim',
                generator=dict(optimizer=dict(ADAMW))))), 'cpu', 'several'),
    (config(optimizer=dict(type='Adadelta')), 'cpu', 'Adadelta'),
    (config(optimizer=dict(type='mine.AdamW')), 'cpu', 'mine.AdamW'),
    (config(optimizer=dict(type='AdamW', foreach=True)), 'cpu', 'foreach'),
    (config(optimizer=dict(type='AdamW', fused=False)), 'cpu', 'fused=False'),
    (config(optimizer=dict(type='Adam', capturable=True)), 'cpu', 'captur'),
    (config(optimizer=dict(type='SGD', momentum=.9, dampening=.1)), 'cpu',
     'dampening'),
    (config(), 'npu', 'not fused on npu'),
    (config(optimizer=dict(type='Adagrad')), 'cuda', 'not fused on cuda'),
    (Config(
        dict(
            optim_wrapper=dict(optimizer=dict(ADAMW)),
            model_wrapper_cfg=dict(type='MMFullyShardedDataParallel'))), 'cpu',
     'sharded'),
])
def test_declines_with_the_reason(cfg, device, word):
    out = plan(cfg, device)
    assert isinstance(out, Declined)
    assert word in out.reason


def test_planning_twice_gives_no_edits():
    cfg = config(clip_grad=dict(max_norm=35), paramwise_cfg=dict(a=1))
    edits = plan(cfg)
    assert all(FusedOptim().allows(e) for e in edits)
    apply_edits(cfg, edits)
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=35)
    assert plan(cfg) == []
