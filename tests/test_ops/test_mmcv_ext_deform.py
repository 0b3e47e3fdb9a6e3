"""mmcv's deformable convolutions over our ``mmcv._ext``."""

import inspect

import pytest
import torch

pytest.importorskip('mmcv')

from mmturbox.ops import deform_conv2d, mmcv_ext  # noqa: E402
from mmturbox.ops.mmcv_ext import deform  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def make_input(batch=2):
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, generator=generator,
                           dtype=torch.float64).requires_grad_()

    return (randn(batch, 4, 6, 7), randn(batch, 24, 3, 7), randn(6, 2, 3, 2),
            randn(batch, 12, 3, 7), randn(6))


OPTIONS = ((2, 1), (1, 1), (1, 2), 2, 2)
NAMES = ('stride', 'padding', 'dilation', 'groups', 'deform_groups')


def assert_same_gradients(out, expected, leaves):
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(out)
    for a, b in zip(torch.autograd.grad(out, leaves, weight),
                    torch.autograd.grad(expected, leaves, weight),
                    strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize('step', [1, 2, 32])
def test_plain_form(mmcv_ops, step):
    x, offset, weight, _, _ = make_input()
    out = mmcv_ops.deform_conv2d(x, offset, weight, *OPTIONS, False, step)
    expected = deform_conv2d(x, offset, weight,
                             **dict(zip(NAMES, OPTIONS, strict=True)))
    assert_same_gradients(out, expected, (x, offset, weight))


@pytest.mark.parametrize('with_bias', [False, True])
def test_modulated_form(mmcv_ops, with_bias):
    x, offset, weight, mask, bias = make_input()
    leaves = (x, offset, weight, mask, bias)[:5 if with_bias else 4]
    bias = bias if with_bias else None
    out = mmcv_ops.modulated_deform_conv2d(x, offset, mask, weight, bias,
                                           *OPTIONS)
    expected = deform_conv2d(x, offset, weight, bias, mask,
                             **dict(zip(NAMES, OPTIONS, strict=True)))
    assert_same_gradients(out, expected, leaves)


def test_published_values(mmcv_ops):
    """The figures of mmcv's own test of the plain form."""
    x = torch.tensor([[[[1., 2, 3], [0, 1, 2], [3, 5, 2]]]],
                     requires_grad=True)
    layer = mmcv_ops.DeformConv2dPack(1, 1, 2)
    layer.conv_offset.weight.data = torch.tensor([
        [.1, .4, .6, .1], [.3, .2, .1, .3], [.5, .5, .2, .8],
        [.8, .3, .9, .1], [.3, .1, .2, .5], [.3, .7, .5, .3],
        [.6, .2, .5, .3], [.4, .1, .8, .4]]).view(8, 1, 2, 2)
    layer.conv_offset.bias.data = torch.tensor([.7, .1, .8, .5, .6, .5, .4,
                                                .7])
    layer.weight.data = torch.tensor([.4, .2, .1, .9]).view(1, 1, 2, 2)
    out = layer(x)
    torch.testing.assert_close(
        out, torch.tensor([[[[1.650, 0], [0, 0]]]]), rtol=0, atol=1e-3)
    out.backward(torch.ones_like(out))
    torch.testing.assert_close(
        x.grad, torch.tensor([[[[-.666, .204, 0], [.030, -.416, .012],
                                [0, .252, .129]]]]), rtol=0, atol=1e-3)


def test_gradients_are_added_and_scaled(mmcv_ops):
    """As mmcv's kernels do with buffers that are not zero."""
    x, offset, weight, _, _ = (t.detach() for t in make_input())
    grad = torch.randn(2, 6, 3, 7, dtype=torch.float64)
    place = dict(kW=2, kH=3, dW=1, dH=2, padW=1, padH=1, dilationW=2,
                 dilationH=1, group=2, deformable_group=2, im2col_step=1)
    sums = []
    for scale in (1, 3):
        total = torch.ones_like(weight)
        deform.deform_conv_backward_parameters(
            x, offset, grad, total, x, x, scale=scale, **place)
        sums.append(total - 1)
    torch.testing.assert_close(sums[0] * 3, sums[1])
    once, again = torch.zeros_like(x), torch.zeros_like(x)
    for buffer, times in ((once, 1), (again, 2)):
        for _ in range(times):
            grad_offset = torch.full_like(offset, 7)
            deform.deform_conv_backward_input(x, offset, grad, buffer,
                                              grad_offset, weight, x, **place)
    torch.testing.assert_close(once * 2, again)
    assert once.any() and not bool((grad_offset == 7).any())


def test_parameters_are_those_that_mmcv_passes(mmcv_ops):
    """Keyword arguments of its calls, read from its source."""
    from mmcv.ops import deform_conv, modulated_deform_conv
    for module, names in (
            (deform_conv, ('deform_conv_forward',
                           'deform_conv_backward_input',
                           'deform_conv_backward_parameters')),
            (modulated_deform_conv, ('modulated_deform_conv_forward',
                                     'modulated_deform_conv_backward'))):
        source = inspect.getsource(module)
        for name in names:
            call = source.split(f'ext_module.{name}(')[1].split('\n\n')[0]
            call = call.split(')\n')[0]
            keywords = [part.split('=')[0].strip()
                        for part in call.split(',') if '=' in part]
            ours = list(inspect.signature(getattr(deform, name)).parameters)
            assert len(keywords) > 8 and ours[-len(keywords):] == keywords
