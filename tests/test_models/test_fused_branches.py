"""Branches evaluated together against one by one."""

import pytest
import torch
from torch import nn

from mmturbox.models.layers import fused_branches
from mmturbox.models.layers.fused_branches import FusedBranches

WIDTHS = (2, 1, 3, 2, 5)


def make(widths=WIDTHS, kernel=3, bias='auto', **block):
    from mmcv.cnn import ConvModule
    torch.manual_seed(0)
    options = dict(
        kernel_size=kernel, padding=kernel // 2, bias=bias,
        norm_cfg=dict(type='BN2d'))
    options.update(block)
    return [
        nn.Sequential(
            ConvModule(4, 6, **options),
            nn.Conv2d(6, width, kernel, padding=kernel // 2))
        for width in widths
    ]


def run(call, branches, x):
    x = x.clone().requires_grad_()
    nn.ModuleList(branches).zero_grad()
    out = call(x)
    torch.manual_seed(1)
    out.backward(torch.randn(out.shape))
    grads = [p.grad for one in branches for p in one.parameters()]
    return [out, x.grad, *grads, *(b.clone().float() for one in branches
                                   for b in one.buffers())]


def assert_same(branches, others, x):
    fused = FusedBranches(branches)
    got = run(fused, branches, x)
    expected = run(
        lambda x: torch.cat([one(x) for one in others], 1), others, x)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('kernel', [1, 3, 5])
@pytest.mark.parametrize('training', [True, False])
def test_outputs_gradients_and_statistics_agree(kernel, training):
    pair = make(kernel=kernel), make(kernel=kernel)
    for branches in pair:
        nn.ModuleList(branches).train(training)
    assert_same(*pair, torch.randn(2, 4, 7, 9))


@pytest.mark.parametrize('part', [1, 600, 4000])
def test_parts_give_the_same(monkeypatch, part):
    monkeypatch.setattr(fused_branches, '_CPU_BYTES', part)
    assert_same(make(), make(), torch.randn(2, 4, 7, 9))


def test_first_convolutions_with_bias():
    assert_same(make(bias=True), make(bias=True), torch.randn(1, 4, 5, 5))


def test_channels_last_input():
    x = torch.randn(2, 4, 7, 9).to(memory_format=torch.channels_last)
    assert_same(make(), make(), x)


def test_other_layers_are_refused_with_the_reason():
    for options, reason in (
        (dict(norm_cfg=dict(type='GN', num_groups=2)), 'GroupNorm'),
        (dict(norm_cfg=dict(type='BN2d', momentum=None)), 'momentum'),
        (dict(act_cfg=dict(type='LeakyReLU')), 'conv, norm, ReLU'),
        (dict(stride=2), 'strided'),
        (dict(padding=0), 'size of the map'),
        (dict(conv_cfg=dict(type='Conv3d'), norm_cfg=dict(type='BN3d')),
         'not'),
    ):
        with pytest.raises(ValueError, match=reason):
            FusedBranches(make(**options))
    with pytest.raises(ValueError, match='not a ConvModule'):
        FusedBranches([nn.Sequential(nn.Conv2d(4, 2, 1))])
    with pytest.raises(ValueError, match='unlike settings'):
        FusedBranches(make(kernel=1) + make(kernel=3))


def test_mixed_modes_are_not_ready():
    branches = make()
    fused = FusedBranches(branches)
    assert fused.ready
    branches[2].eval()
    assert not fused.ready


@pytest.mark.parametrize('place', [
    lambda branch: branch,
    lambda branch: branch[0],
    lambda branch: branch[0].conv,
    lambda branch: branch[0].norm,
    lambda branch: branch[0].activate,
    lambda branch: branch[1],
])
def test_hooked_layers_are_not_ready(place):
    branches = make()
    fused, module = FusedBranches(branches), place(branches[1])
    for register in (module.register_forward_hook,
                     module.register_forward_pre_hook,
                     module.register_full_backward_hook,
                     module.register_full_backward_pre_hook):
        handle = register(print)
        assert fused.why_not() == 'layers have hooks'
        handle.remove()
        assert fused.ready


def test_another_activation_is_not_ready():
    branches = make()
    fused = FusedBranches(branches)
    branches[0][0].activate = nn.LeakyReLU()
    assert fused.why_not() == 'layers were replaced'
