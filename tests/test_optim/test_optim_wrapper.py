"""The wrapper against MMEngine's, and against bad gradients."""

import copy
import io
from itertools import count

import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.optim import OptimWrapper as StockOptimWrapper
from mmengine.optim import build_optim_wrapper
from torch import nn

from mmturbox.optim import OptimWrapper
from mmturbox.registry import OPTIM_WRAPPERS

OPTIMIZERS = [
    dict(type='AdamW', lr=0.01, weight_decay=0.05),
    dict(type='Adam', lr=0.01, amsgrad=True),
    dict(type='SGD', lr=0.01),
    dict(type='SGD', lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-3),
    dict(type='Adagrad', lr=0.01),
]
_names = count()


class Net(nn.Module):

    def __init__(self):
        super().__init__()
        # A bias before a norm has a gradient of rounding noise only.
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.late = nn.Linear(5, 5)
        self.uses_late = True

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        x = self.head(x)
        return self.late(x) if self.uses_late else x


def build(optimizer, kind='mmturbox.OptimWrapper', model=None, **kwargs):
    """A seeded model and its wrapper, with a message hub of its own."""
    MessageHub.get_instance(f'optim-{next(_names)}')
    if model is None:
        torch.manual_seed(0)
        model = Net()
    wrapper = build_optim_wrapper(
        model, dict(type=kind, optimizer=dict(optimizer), **kwargs))
    return model, wrapper


def loss_of(model, i):
    x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(i))
    return model(x).pow(2).sum() * 10


def train(model, wrapper, steps, start=0):
    for i in range(start, start + steps):
        wrapper.update_params(loss_of(model, i))


def assert_same(a, b, exact=False):
    for (name, p), q in zip(a.state_dict().items(), b.state_dict().values(),
                            strict=True):
        tol = dict(rtol=0, atol=0) if exact else dict(rtol=2e-5, atol=1e-7)
        torch.testing.assert_close(p, q, msg=lambda m, n=name: f'{n}: {m}',
                                   **tol)


def snapshot(model, wrapper):
    return copy.deepcopy((model.state_dict(), wrapper.state_dict()['state']))


def test_registered_and_built_by_name():
    assert OPTIM_WRAPPERS.get('OptimWrapper') is OptimWrapper
    _, wrapper = build(OPTIMIZERS[0])
    assert type(wrapper) is OptimWrapper
    assert isinstance(wrapper, StockOptimWrapper)


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_users_groups_and_flags_stay(optimizer):
    _, stock = build(optimizer, 'OptimWrapper')
    model, ours = build(optimizer)
    train(model, ours, 2)
    assert ours._fused
    for group, expected in zip(ours.param_groups, stock.param_groups,
                               strict=True):
        group, expected = dict(group), dict(expected)
        assert len(group.pop('params')) == len(expected.pop('params'))
        assert group == expected
    assert ours.get_lr() == stock.get_lr()
    assert ours.get_momentum() == stock.get_momentum()


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
@pytest.mark.parametrize('first', ['OptimWrapper', 'mmturbox.OptimWrapper'])
@pytest.mark.parametrize('second', ['OptimWrapper', 'mmturbox.OptimWrapper'])
def test_checkpoints_load_both_ways(optimizer, first, second):
    # KF-D9: 5 + 5 steps equal 10; bitwise within one wrapper.
    paramwise = dict(norm_decay_mult=0.) if 'weight_decay' in optimizer else {}
    kwargs = dict(clip_grad=dict(max_norm=1.), paramwise_cfg=paramwise)
    straight, wrapper = build(optimizer, second, **kwargs)
    train(straight, wrapper, 10)
    model, wrapper = build(optimizer, first, **kwargs)
    train(model, wrapper, 5)
    file = io.BytesIO()
    torch.save(dict(m=model.state_dict(), o=wrapper.state_dict()), file)
    file.seek(0)
    loaded = torch.load(file, map_location='cpu', weights_only=True)
    resumed, wrapper = build(optimizer, second, **kwargs)
    resumed.load_state_dict(loaded['m'])
    wrapper.load_state_dict(loaded['o'])
    train(resumed, wrapper, 5, start=5)
    assert_same(resumed, straight, exact=first == second)


def test_state_dict_has_the_layout_of_stock():
    kwargs = dict(paramwise_cfg=dict(norm_decay_mult=0., bias_lr_mult=2.))
    out = []
    for kind in ('OptimWrapper', 'mmturbox.OptimWrapper'):
        model, wrapper = build(OPTIMIZERS[0], kind, **kwargs)
        train(model, wrapper, 3)
        out.append(wrapper.state_dict())
    stock, ours = out
    assert ours['param_groups'] == stock['param_groups']
    assert ours.keys() == stock.keys()
    for key, state in stock['state'].items():
        for name, value in state.items():
            mine = ours['state'][key][name]
            assert mine.dtype == value.dtype and mine.shape == value.shape


def test_state_of_an_older_layout_is_brought_into_shape():
    # The moments were saved by a channels-last run; float64 step counters.
    model, wrapper = build(OPTIMIZERS[0])
    train(model, wrapper, 3)
    other, loaded = build(OPTIMIZERS[0])
    state = copy.deepcopy(wrapper.state_dict())
    for entry in state['state'].values():
        entry['step'] = entry['step'].double()
        for name in ('exp_avg', 'exp_avg_sq'):
            if entry[name].dim() == 4:
                entry[name] = entry[name].contiguous(
                    memory_format=torch.channels_last)
    other.load_state_dict(model.state_dict())
    loaded.load_state_dict(state)
    train(model, wrapper, 2, start=3)
    train(other, loaded, 2, start=3)
    assert_same(other, model, exact=True)


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
@pytest.mark.parametrize('bad', [float('inf'), float('nan'), 1e20])
@pytest.mark.parametrize('at', [0, 3])
def test_bad_gradients_skip_the_step(optimizer, bad, at):
    # KF-D7
    model, wrapper = build(optimizer, clip_grad=dict(max_norm=1.))
    reference, clean = build(optimizer, clip_grad=dict(max_norm=1.))
    train(model, wrapper, at)
    train(reference, clean, at)
    before = snapshot(model, wrapper)
    wrapper.backward(loss_of(model, 99))
    model.head.weight.grad[0, 0] = bad
    wrapper.step()
    wrapper.zero_grad()
    weights, state = snapshot(model, wrapper)
    for key, value in weights.items():
        if 'running' not in key and 'num_batches' not in key:
            assert torch.equal(value, before[0][key])
    for key, entry in state.items():
        for name, value in entry.items():
            expected = before[1].get(key, {}).get(
                name, torch.zeros_like(value))
            assert torch.equal(value, expected), name
    assert wrapper.skipped_steps == 1
    # And training goes on as if that step had not been.
    model.load_state_dict(reference.state_dict())
    train(model, wrapper, 3, start=at)
    train(reference, clean, 3, start=at)
    assert_same(model, reference, exact=True)
    assert wrapper.skipped_steps == 1


@pytest.mark.parametrize('kwargs', [
    dict(on_nonfinite='raise', clip_grad=dict(max_norm=1.)),
    dict(clip_grad=dict(max_norm=1., error_if_nonfinite=True))
])
def test_bad_gradients_raise_where_asked(kwargs):
    # KF-D7
    model, wrapper = build(OPTIMIZERS[0], **kwargs)
    train(model, wrapper, 1)
    before, _ = snapshot(model, wrapper)
    wrapper.backward(loss_of(model, 0))
    model.head.bias.grad[0] = float('nan')
    with pytest.raises(RuntimeError, match='gradient norm is nan'):
        wrapper.step()
    assert torch.equal(model.head.weight, before['head.weight'])


@pytest.mark.parametrize('bad', [float('inf'), float('nan')])
def test_bad_gradients_skip_without_a_fused_kernel_too(bad):
    # KF-D7
    model, wrapper = build(
        dict(type='RMSprop', lr=0.01), clip_grad=dict(max_norm=1.))
    assert not wrapper._fused
    train(model, wrapper, 2)
    before, _ = snapshot(model, wrapper)
    wrapper.backward(loss_of(model, 0))
    model.head.bias.grad[0] = bad
    wrapper.step()
    assert torch.equal(model.head.weight, before['head.weight'])
    assert wrapper.skipped_steps == 1


@pytest.mark.parametrize('optimizer, word', [
    (dict(type='AdamW', lr=0.01, foreach=True), 'foreach'),
    (dict(type='AdamW', lr=0.01, fused=False), 'fused=False'),
    (dict(type='AdamW', lr=0.01, differentiable=False), None),
    (dict(type='AdamW', lr=0.01, fused=True), None),
    (dict(type='SGD', lr=0.01, momentum=0.9, dampening=0.1), 'dampening'),
    (dict(type='SGD', lr=0.01, dampening=0.1), None),
])
def test_flags_of_the_user_are_respected(optimizer, word):
    from mmturbox.optim.fused import why_not_fusable
    _, wrapper = build(optimizer)
    reason = why_not_fusable(wrapper.optimizer)
    assert (word in reason) if word else reason is None
    assert wrapper._fused == (word is None)
    for key, value in optimizer.items():
        if key != 'type':
            assert wrapper.param_groups[0][key] == value


def test_low_precision_parameters_are_not_fused():
    _, wrapper = build(OPTIMIZERS[0], model=Net().bfloat16())
    assert not wrapper._fused


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_gradients_of_another_layout_give_the_same_step(optimizer):
    out = []
    for kind in ('OptimWrapper', 'mmturbox.OptimWrapper'):
        torch.manual_seed(0)
        model, wrapper = build(optimizer, kind, nn.Linear(4, 6))
        for _ in range(2):
            model.weight.grad = torch.randn(4, 6).t()
            model.bias.grad = torch.randn(1).expand(6)
            wrapper.step()
        out.append(model)
    assert_same(*out)


def test_channels_last_parameters_give_the_same_step():
    out = []
    for kind in ('OptimWrapper', 'mmturbox.OptimWrapper'):
        torch.manual_seed(0)
        model = Net().to(memory_format=torch.channels_last)
        model, wrapper = build(OPTIMIZERS[0], kind, model)
        train(model, wrapper, 4)
        out.append(model)
    assert_same(*out)


def test_a_parameter_that_joins_late_is_stepped_as_in_stock():
    # Torch's fused SGD takes momentum buffers for all parameters or none.
    out = []
    for kind in ('OptimWrapper', 'mmturbox.OptimWrapper'):
        model, wrapper = build(OPTIMIZERS[3], kind)
        model.uses_late = False
        train(model, wrapper, 3)
        model.uses_late = True
        train(model, wrapper, 3, start=3)
        out.append(model)
    assert_same(*out)


def test_sparse_gradients_are_stepped_as_in_stock():
    out = []
    for kind in ('OptimWrapper', 'mmturbox.OptimWrapper'):
        torch.manual_seed(0)
        model, wrapper = build(
            dict(type='SGD', lr=0.1), kind, nn.Embedding(5, 3, sparse=True))
        for _ in range(3):
            wrapper.update_params(model(torch.tensor([1, 3])).pow(2).sum())
        out.append(model)
    assert_same(*out, exact=True)


@pytest.mark.parametrize('tied', ['module', 'weight'])
@pytest.mark.parametrize('frozen', [False, True])
def test_shared_parameters_are_in_one_group(tied, frozen):
    # KF-D10
    model = nn.ModuleDict(dict(a=nn.Linear(4, 4), b=nn.Linear(4, 4)))
    if tied == 'module':
        model['b'] = model['a']
    else:
        model['b'].weight = model['a'].weight
    model['a'].weight.requires_grad_(not frozen)
    _, wrapper = build(
        OPTIMIZERS[0],
        model=model,
        paramwise_cfg=dict(bias_decay_mult=0., bypass_duplicate=True))
    wanted = {id(p) for p in model.parameters() if p.requires_grad}
    for groups in (wrapper.optimizer.param_groups, wrapper._groups.merge()):
        got = [id(p) for g in groups for p in g['params']]
        assert len(got) == len(set(got))
        assert set(got) == wanted


def test_a_loss_is_not_divided_by_one():
    _, wrapper = build(OPTIMIZERS[0])
    loss = torch.ones((), requires_grad=True)
    assert wrapper.scale_loss(loss) is loss


def test_closures_reach_the_optimizer():
    model, wrapper = build(OPTIMIZERS[0])
    calls = []
    wrapper.backward(loss_of(model, 0))
    wrapper.step(closure=lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.parametrize('kwargs, error, word', [
    (dict(on_nonfinite='ignore'), ValueError, 'on_nonfinite'),
    (dict(clip_grad=dict(norm_type=2)), ValueError, 'max_norm'),
])
def test_bad_arguments_are_named(kwargs, error, word):
    with pytest.raises(error, match=word):
        build(OPTIMIZERS[0], **kwargs)
