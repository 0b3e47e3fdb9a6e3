"""Multi-scale deformable attention."""

import math

import pytest
import torch

from mmturbox.ops import mmcv_ext, ms_deform_attn, native
from mmturbox.ops.ms_deform_attn import (
    ms_deform_attn_backward_reference,
    ms_deform_attn_reference,
)

OPS = torch.ops.mmturbox
SHAPES = [(5, 7), (3, 2)]
both_weights = pytest.mark.parametrize('softmax', [False, True])


def make_input(device='cpu', batch=2, queries=11, heads=3, channels=5,
               shapes=SHAPES, points=3, dtype=torch.float32):
    """Samples that also leave the maps."""
    draw = torch.Generator().manual_seed(queries)
    levels = torch.tensor(shapes, dtype=torch.int64).view(-1, 2)
    sizes = levels.prod(1)
    starts = sizes.cumsum(0) - sizes
    value = torch.randn(batch, int(sizes.sum()), heads, channels,
                        generator=draw)
    lead = (batch, queries, heads, len(shapes), points)
    locations = torch.rand(*lead, 2, generator=draw) * 1.5 - 0.25
    weights = torch.randn(lead, generator=draw)
    return (value.to(device, dtype), levels.to(device), starts.to(device),
            locations.to(device, dtype), weights.to(device, dtype))


def plain_attention(value, shapes, starts, locations, weights, softmax):
    """Independent of the package: Python floats, sample by sample."""
    batch, queries, heads, levels, points = weights.shape
    if softmax:
        weights = weights.flatten(3).softmax(3).view(weights.shape)
    out = torch.zeros(batch, queries, heads, value.shape[3])
    for b, q, h, i, p in torch.cartesian_prod(
            *map(torch.arange, weights.shape)).tolist():
        height, width = shapes[i].tolist()
        x, y = locations[b, q, h, i, p].tolist()
        x, y = x * width - 0.5, y * height - 0.5
        for cy in range(height):
            for cx in range(width):
                near = max(1 - abs(x - cx), 0) * max(1 - abs(y - cy), 0)
                cell = int(starts[i]) + cy * width + cx
                out[b, q, h] += (near * weights[b, q, h, i, p].item() *
                                 value[b, cell, h])
    return out.flatten(2)


def grads_of(inputs, softmax, grad=None):
    """Result and gradients of value, locations and weights."""
    leaves = [inputs[i].detach().clone().requires_grad_() for i in (0, 3, 4)]
    out = ms_deform_attn(leaves[0], *inputs[1:3], *leaves[1:], softmax)
    out.backward(torch.ones_like(out) if grad is None else grad)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def assert_repeats(found, expected):
    """Bitwise, but for the gradient of the maps, which CUDA adds in any
    order."""
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if i == 1:
            torch.testing.assert_close(a, b)
        else:
            assert torch.equal(a, b), i


@both_weights
def test_attention_matches_plain_python(device, softmax):
    inputs = make_input(device)
    expected = plain_attention(*(t.cpu() for t in inputs), softmax)
    found = ms_deform_attn(*inputs, softmax)
    torch.testing.assert_close(found.cpu(), expected)


@both_weights
@pytest.mark.parametrize('channels', [1, 8, 16, 32, 43, 96])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_kernels_equal_the_reference(device, softmax, channels, dtype):
    inputs = make_input(device, queries=37, channels=channels, dtype=dtype)
    flat = [t.flatten(0, 1) if t.dim() > 4 else t for t in inputs]
    arguments = (*flat[:3], flat[3], flat[4], None, None, softmax)
    found = OPS.ms_deform_attn(*arguments)
    expected = ms_deform_attn_reference(*arguments)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    for a, b in zip(
            OPS.ms_deform_attn_backward(grad, *arguments),
            ms_deform_attn_backward_reference(grad, *arguments),
            strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@both_weights
def test_gradients_are_right(softmax):
    value, shapes, starts, locations, weights = make_input(
        queries=3, heads=2, channels=2, points=2, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda v, at, w: ms_deform_attn(v, shapes, starts, at, w, softmax),
        [t.requires_grad_() for t in (value, locations, weights)])


@pytest.mark.parametrize('batch', [1, 3, 65])
def test_result_and_gradients_equal_mmcvs_formula(batch):
    """KF-A10: there is no step that a batch has to be divisible by."""
    mmcv_ext.install()
    stock = pytest.importorskip('mmcv.ops.multi_scale_deform_attn')
    inputs = make_input(batch=batch, dtype=torch.float64)
    leaves = [inputs[i].clone().requires_grad_() for i in (0, 3, 4)]
    expected = stock.multi_scale_deformable_attn_pytorch(
        leaves[0], inputs[1], *leaves[1:])
    grad = torch.randn_like(expected)
    expected.backward(grad)
    found = grads_of(inputs, False, grad)
    for a, b in zip(found, (expected, *(leaf.grad for leaf in leaves)),
                    strict=True):
        torch.testing.assert_close(a, b.detach())


@both_weights
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_float32_result_once(
        device, softmax, dtype):
    inputs = make_input(device, channels=16, dtype=dtype)
    exact = [t.float() if t.is_floating_point() else t for t in inputs]
    for a, b in zip(grads_of(inputs, softmax), grads_of(exact, softmax),
                    strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b.to(dtype))
    # Locations that keep their precision beside half values.
    mixed = [inputs[0], *exact[1:]]
    found = grads_of(mixed, softmax)
    assert [t.dtype for t in found] == [dtype] * 2 + [torch.float32] * 2
    torch.testing.assert_close(
        found[2], grads_of([inputs[0].float(), *exact[1:]], softmax)[2])


@both_weights
def test_samples_that_are_not_finite_are_zero(device, softmax):
    inputs = make_input(device)
    expected = inputs[3].clone()
    expected[0, :, :, 0, 0] = 7.0
    for k, bad in enumerate((math.nan, math.inf, -math.inf, 3e38, -1e30)):
        inputs[3][0, k, :, 0, 0, k % 2] = bad
        expected[0, k, :, 0, 0] = -5.0
    expected[0, 5:] = inputs[3][0, 5:]
    found = grads_of(inputs, softmax)
    assert_repeats(
        found, grads_of((*inputs[:3], expected, inputs[4]), softmax))
    assert not found[2][0, :5, :, 0, 0].any()


def test_cells_that_no_sample_touches_are_not_read(device):
    inputs = make_input(device, shapes=[(4, 4)])
    inputs[3].copy_(inputs[3] * 0.2 + 0.3)
    expected = grads_of(inputs, False)
    inputs[0].view(2, 4, 4, 3, 5)[:, 3] = math.nan
    assert_repeats(grads_of(inputs, False), expected)


@both_weights
def test_two_runs_give_the_same(device, softmax):
    inputs = make_input(device, queries=17, channels=40, points=20)
    assert_repeats(grads_of(inputs, softmax), grads_of(inputs, softmax))


@both_weights
def test_edges_of_shape_and_memory(device, softmax):
    inputs = make_input(device)
    for empty in (make_input(device, batch=0), make_input(device, queries=0)):
        results = grads_of(empty, softmax)
        assert results[0].shape == (*empty[4].shape[:2], 15)
        assert not results[1].any()
    none = make_input(device, shapes=[])
    assert not ms_deform_attn(*none, softmax).any()
    one = make_input(device, 1, 1, 1, 1, [(1, 1)], 1)
    ms_deform_attn(*one, softmax)
    views = [t.transpose(0, -1).contiguous().transpose(0, -1)
             for t in inputs]
    assert not views[0].is_contiguous() and not views[3].is_contiguous()
    for a, b in zip(grads_of(views, softmax), grads_of(inputs, softmax),
                    strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.skipif(not native(), reason='no native operators')
@both_weights
def test_results_do_not_depend_on_run_or_threads(softmax):
    inputs = make_input(queries=200, channels=32)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            grad = torch.linspace(-1, 1, 2 * 200 * 96).view(2, 200, 96)
            results.append(grads_of(inputs, softmax, grad))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))


@both_weights
def test_operators_pass_opcheck(softmax):
    inputs = make_input(queries=3, channels=4)
    flat = [t.flatten(0, 1) if t.dim() > 4 else t for t in inputs]
    for i in (0, 3, 4):
        flat[i].requires_grad_()
    arguments = (*flat, None, None, softmax)
    torch.library.opcheck(OPS.ms_deform_attn.default, arguments)
    with torch.no_grad():
        grad = OPS.ms_deform_attn(*arguments)
        torch.library.opcheck(OPS.ms_deform_attn_backward.default,
                              (grad, *(t.detach() for t in flat), None, None,
                               softmax))


@pytest.mark.parametrize('index, change, message', [
    (0, lambda t: t[0], 'value'),
    (0, lambda t: t.long(), 'value'),
    (1, lambda t: t[:, :1], 'spatial_shapes'),
    (1, lambda t: t.int(), 'spatial_shapes'),
    (2, lambda t: t[:1], 'level_start_index'),
    (3, lambda t: t[..., 0], 'locations'),
    (3, lambda t: t[:1], 'locations'),
    (4, lambda t: t[..., :2], 'weights'),
])
def test_wrong_shapes_are_named(index, change, message):
    inputs = list(make_input())
    inputs[index] = change(inputs[index])
    with pytest.raises(ValueError, match=message):
        ms_deform_attn(*inputs)


def test_levels_that_reach_out_of_the_value_are_an_error():
    inputs = list(make_input())
    inputs[0] = inputs[0][:, :-1]
    with pytest.raises((RuntimeError, IndexError), match=r'level|index'):
        ms_deform_attn(*inputs)
