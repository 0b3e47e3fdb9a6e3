"""Geometric kernel attention."""

import math

import pytest
import torch
from test_ms_deform_attn import assert_repeats

from mmturbox.ops import (
    geometry_kernel_attn,
    geometry_kernel_attn_ragged,
    native,
    pack_hits,
)
from mmturbox.ops.geometry_kernel_attn import (
    geometry_kernel_attn_backward_reference,
    geometry_kernel_attn_reference,
    kernel_offsets,
)

OPS = torch.ops.mmturbox
KERNEL = (3, 5)


def make_input(device='cpu', batch=2, queries=11, heads=3, channels=5,
               shapes=((6, 7), (3, 2)), kernel=KERNEL, dtype=torch.float32):
    """Points that also leave the maps."""
    draw = torch.Generator().manual_seed(queries)
    levels = torch.tensor(shapes, dtype=torch.int64)
    sizes = levels.prod(1)
    starts = sizes.cumsum(0) - sizes
    value = torch.randn(batch, int(sizes.sum()), heads, channels,
                        generator=draw)
    lead = (batch, queries, heads)
    points = torch.rand(*lead, 2, generator=draw) * 1.4 - 0.2
    logits = torch.randn(*lead, len(shapes), math.prod(kernel),
                         generator=draw)
    return (value.to(device, dtype), levels.to(device), starts.to(device),
            points.to(device, dtype), logits.to(device, dtype))


def make_hits(device='cpu', queries=23, room=9, **options):
    draw = torch.Generator().manual_seed(7)
    mask = torch.rand(queries, 3, generator=draw) < 0.4
    mask[-1] = False
    capacity = int(mask.sum()) + room
    query, image, offsets = pack_hits(mask.to(device), capacity)
    value, shapes, starts, points, logits = make_input(
        device, batch=3, queries=capacity, **options)
    return mask, query, (value, shapes, starts, points[0], logits[0], image,
                         offsets)


def plain_attention(value, shapes, starts, points, logits):
    """Independent of the package: Python numbers, cell by cell."""
    batch, queries, heads, levels, cells = logits.shape
    weights = logits.flatten(3).softmax(3).view(logits.shape)
    out = torch.zeros(batch, queries, heads, value.shape[3])
    for b, q, h, i, k in torch.cartesian_prod(
            *map(torch.arange, logits.shape)).tolist():
        height, width = shapes[i].tolist()
        x, y = points[b, q, h].tolist()
        # Python rounds half to even, as torch does.
        x = min(max(round(x * width + k // 3 - 2), 0), width - 1)
        y = min(max(round(y * height + k % 3 - 1), 0), height - 1)
        out[b, q, h] += (weights[b, q, h, i, k] *
                         value[b, int(starts[i]) + y * width + x, h])
    return out.flatten(2)


def grads_of(function, inputs, *rest, grad=None):
    inputs = list(inputs)
    for i in (0, 4):
        inputs[i] = inputs[i].detach().clone().requires_grad_()
    out = function(*inputs, *rest)
    out.backward(torch.ones_like(out) if grad is None else grad)
    return [out.detach(), inputs[0].grad, inputs[4].grad]


def test_x_is_the_outer_loop_of_a_kernel():
    assert kernel_offsets((3, 5), 1).tolist() == [
        [x, y] for x in range(-2, 3) for y in range(-1, 2)]
    assert kernel_offsets((1, 2), 3).tolist() == [[-3, 0], [0, 0]]


def test_attention_matches_plain_python(device):
    inputs = make_input(device)
    expected = plain_attention(*(t.cpu() for t in inputs))
    found = geometry_kernel_attn(*inputs, KERNEL)
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize('channels', [1, 8, 37, 64])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('kernel', [(3, 5, 1), (2, 4, 3)])
def test_kernels_equal_the_reference(device, channels, dtype, kernel):
    inputs = make_input(device, queries=37, channels=channels, dtype=dtype,
                        kernel=kernel[:2])
    dense = (*inputs[:3], inputs[3].flatten(0, 1), inputs[4].flatten(0, 1),
             None, None, list(kernel))
    ragged = (*make_hits(device, channels=channels, dtype=dtype,
                         kernel=kernel[:2])[2], list(kernel))
    for arguments in (dense, ragged):
        found = OPS.geometry_kernel_attn(*arguments)
        torch.testing.assert_close(
            found, geometry_kernel_attn_reference(*arguments))
        grad = torch.randn_like(found)
        for a, b in zip(
                OPS.geometry_kernel_attn_backward(grad, *arguments),
                geometry_kernel_attn_backward_reference(grad, *arguments),
                strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_are_right():
    inputs = make_input(queries=2, heads=2, channels=2, kernel=(2, 2),
                        dtype=torch.float64)
    value, shapes, starts, points, logits = inputs
    assert torch.autograd.gradcheck(
        lambda v, z: geometry_kernel_attn(v, shapes, starts, points, z,
                                          (2, 2)),
        [value.requires_grad_(), logits.requires_grad_()])
    _, _, inputs = make_hits(queries=6, room=2, heads=1, channels=2,
                             kernel=(1, 2), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda v, z: geometry_kernel_attn_ragged(
            v, *inputs[1:4], z, *inputs[5:], (1, 2)),
        [inputs[i].requires_grad_() for i in (0, 4)])


def test_mean_over_the_images_equals_attention_image_by_image(device):
    mask, query, inputs = make_hits(device)
    value, shapes, starts, points, logits, image, offsets = inputs
    expected = torch.zeros(23, 15, device=device)
    for t in range(int(mask.sum())):
        i = int(image[t])
        expected[query[t]] += geometry_kernel_attn(
            value[i:i + 1], shapes, starts, points[None, t:t + 1],
            logits[None, t:t + 1], KERNEL)[0, 0]
    expected /= mask.sum(1, keepdim=True).clamp(min=1).to(device)
    torch.testing.assert_close(
        geometry_kernel_attn_ragged(*inputs, KERNEL), expected)


def test_what_stands_behind_the_last_hit_is_not_read(device):
    mask, _, inputs = make_hits(device)
    expected = grads_of(geometry_kernel_attn_ragged, inputs, KERNEL)
    for i, bad in ((3, math.nan), (4, math.nan), (5, 99)):
        inputs[i][int(mask.sum()):] = bad
    found = grads_of(geometry_kernel_attn_ragged, inputs, KERNEL)
    assert_repeats(found, expected)
    assert not found[2][int(mask.sum()):].any()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_float32_result_once(device, dtype):
    inputs = make_input(device, channels=16, dtype=dtype)
    exact = [t.float() if t.is_floating_point() else t for t in inputs]
    for a, b in zip(grads_of(geometry_kernel_attn, inputs, KERNEL),
                    grads_of(geometry_kernel_attn, exact, KERNEL),
                    strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b.to(dtype))


def test_points_far_away_or_not_finite_stay_in_the_map(device):
    inputs = make_input(device)
    bad = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5])
    inputs[3][0, :6] = bad.to(device)[:, None, None]
    assert geometry_kernel_attn(*inputs, KERNEL).isfinite().all()
    corner = [t.clone() for t in inputs]
    corner[3][0, :6] = torch.tensor([0, 9, -9, 9, -9, 0.5]).to(
        device)[:, None, None]
    corner[3][0, 0] = -9
    assert torch.equal(
        geometry_kernel_attn(*inputs, KERNEL)[0, 1:],
        geometry_kernel_attn(*corner, KERNEL)[0, 1:])


def test_edges_of_shape_and_memory(device):
    for options in (dict(batch=0), dict(queries=0)):
        inputs = make_input(device, **options)
        results = grads_of(geometry_kernel_attn, inputs, KERNEL)
        assert results[0].shape == (*inputs[3].shape[:2], 15)
        assert not results[1].any()
    one = make_input(device, 1, 1, 1, 1, [(1, 1)], (1, 1))
    torch.testing.assert_close(
        geometry_kernel_attn(*one, (1, 1)), one[0].view(1, 1, 1))
    inputs = make_input(device)
    views = [t.transpose(0, -1).contiguous().transpose(0, -1)
             for t in inputs]
    assert not views[0].is_contiguous() and not views[4].is_contiguous()
    for a, b in zip(grads_of(geometry_kernel_attn, views, KERNEL),
                    grads_of(geometry_kernel_attn, inputs, KERNEL),
                    strict=True):
        torch.testing.assert_close(a, b)


def test_two_runs_give_the_same(device):
    inputs = make_input(device, queries=50, channels=40)
    assert_repeats(grads_of(geometry_kernel_attn, inputs, KERNEL),
                   grads_of(geometry_kernel_attn, inputs, KERNEL))


@pytest.mark.skipif(not native(), reason='no native operators')
def test_results_do_not_depend_on_run_or_threads():
    inputs = make_input(queries=200, channels=32)
    grad = torch.linspace(-1, 1, 2 * 200 * 96).view(2, 200, 96)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(
                grads_of(geometry_kernel_attn, inputs, KERNEL, grad=grad))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))


def test_operators_pass_opcheck():
    *inputs, images, offsets = make_hits(queries=7, channels=4)[2]
    arguments = (*inputs, images, offsets, [*KERNEL, 1])
    torch.library.opcheck(OPS.geometry_kernel_attn_backward.default,
                          (torch.randn(7, 12), *arguments))
    for i in (0, 4):
        inputs[i].requires_grad_()
    torch.library.opcheck(OPS.geometry_kernel_attn.default, arguments)


@pytest.mark.parametrize('index, change, message', [
    (0, lambda t: t[0], 'value'),
    (1, lambda t: t[:, :1], 'spatial_shapes'),
    (2, lambda t: t[:1], 'level_start_index'),
    (3, lambda t: t[0], 'references'),
    (3, lambda t: t[..., :1], 'references'),
    (4, lambda t: t[..., :2], 'logits'),
])
def test_wrong_shapes_are_named(index, change, message):
    inputs = list(make_input())
    inputs[index] = change(inputs[index])
    with pytest.raises(ValueError, match=message):
        geometry_kernel_attn(*inputs, KERNEL)
