"""Deformable aggregation, with given weights and with split logits."""

import math

import pytest
import torch

from mmturbox.ops import (
    deformable_aggregation,
    deformable_aggregation_per_point,
    deformable_aggregation_split,
    native,
)
from mmturbox.ops.deformable_aggregation import (
    deformable_aggregation_backward_reference,
    deformable_aggregation_reference,
    deformable_aggregation_split_backward_reference,
    deformable_aggregation_split_reference,
)

OPS = torch.ops.mmturbox
SIZES = [[(4, 6), (2, 3)], [(5, 3), (1, 1)], [(3, 3), (2, 4)]]


def make_input(device='cpu', batch=2, anchors=5, points=4, groups=2,
               channels=6, dtype=torch.float32):
    """Three cameras of unlike maps; points that also leave the images."""
    draw = torch.Generator().manual_seed(channels)
    shapes = torch.tensor(SIZES)
    cells = shapes.prod(2).flatten()
    starts = (cells.cumsum(0) - cells).view(3, 2)
    feats = torch.randn(batch, int(cells.sum()), channels, generator=draw)
    lead = (batch, anchors, points, 3)
    locations = torch.rand(*lead, 2, generator=draw) * 1.6 - 0.3
    weights = torch.randn(*lead, 2, groups, generator=draw)
    return (feats.to(device, dtype), shapes.to(device), starts.to(device),
            locations.to(device, dtype), weights.to(device, dtype))


def make_split(device='cpu', scale=True, **options):
    *rest, weights = make_input(device, **options)
    draw = torch.Generator().manual_seed(3)
    batch, anchors, points, cameras, levels, groups = weights.shape
    tail = (levels, points, groups)
    logits = [torch.randn(batch, n, *tail, generator=draw).to(weights)
              for n in (anchors, cameras)]
    factors = torch.rand(weights.shape[:4], generator=draw).to(weights)
    factors[factors < 0.3] = 0
    return [*rest, *logits, factors if scale else None]


def plain_aggregation(feats, shapes, starts, locations, weights):
    """Independent of the package: Python floats, cell by cell."""
    groups = weights.shape[-1]
    out = torch.zeros(*locations.shape[:2], groups, feats.shape[2] // groups)
    for b, n, k, m in torch.cartesian_prod(
            *map(torch.arange, locations.shape[:4])).tolist():
        x, y = locations[b, n, k, m].tolist()
        if not (0 < x < 1 and 0 < y < 1):
            continue
        for level, (height, width) in enumerate(shapes[m].tolist()):
            for cell in range(height * width):
                cy, cx = divmod(cell, width)
                near = (max(1 - abs(x * width - 0.5 - cx), 0) *
                        max(1 - abs(y * height - 0.5 - cy), 0))
                row = feats[b, int(starts[m, level]) + cell]
                out[b, n] += near * (weights[b, n, k, m, level][:, None] *
                                     row.view(groups, -1))
    return out.flatten(2)


def run(function, inputs, diff, grad=None):
    """Result and the gradients of the inputs numbered ``diff``."""
    inputs = list(inputs)
    for i in diff:
        inputs[i] = inputs[i].detach().clone().requires_grad_()
    out = function(*inputs)
    out.backward(torch.ones_like(out) if grad is None else grad)
    return [out.detach(), *(inputs[i].grad for i in diff)]


WEIGHTED = (deformable_aggregation, make_input, (0, 3, 4))
SPLIT = (deformable_aggregation_split, make_split, (0, 3, 4, 5))
both_forms = pytest.mark.parametrize(
    'function, make, diff', [WEIGHTED, SPLIT], ids=['weights', 'split'])


def test_aggregation_matches_plain_python(device):
    inputs = make_input(device)
    expected = plain_aggregation(*(t.cpu() for t in inputs))
    torch.testing.assert_close(
        deformable_aggregation(*inputs).cpu(), expected)


def test_split_logits_equal_their_softmax(device):
    *rest, anchors, cameras, scale = make_split(device, dtype=torch.float64)
    logits = anchors[:, :, None] + cameras[:, None]
    weights = logits.permute(0, 1, 4, 2, 3, 5).flatten(2, 4).softmax(2)
    weights = weights.view(*rest[3].shape[:4], 2, 2)
    weights = weights * scale[..., None, None]
    torch.testing.assert_close(
        deformable_aggregation_split(*rest, anchors, cameras, scale),
        deformable_aggregation(*rest, weights))


def test_points_of_one_camera_shape_are_kept_apart(device):
    *_, locations, weights = make_input(device)
    shapes = torch.tensor([(4, 6), (2, 3)], device=device)
    starts = torch.tensor([0, 24], device=device)
    feats = torch.randn(2, 3, 30, 6, device=device)
    flat = locations.flatten(1, 2), weights.flatten(1, 2)
    found = deformable_aggregation_per_point(feats, shapes, starts, *flat)
    assert found.shape == (2, 20, 6)
    many = (shapes.expand(3, -1, -1),
            starts + 30 * torch.arange(3, device=device)[:, None])
    torch.testing.assert_close(
        found.view(2, 5, 4, 6).sum(2),
        deformable_aggregation(feats.flatten(1, 2), *many, locations,
                               weights))


@pytest.mark.parametrize('groups, channels', [(1, 1), (2, 6), (2, 64),
                                              (3, 33), (8, 256)])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_kernels_equal_the_reference(device, groups, channels, dtype):
    options = dict(groups=groups, channels=channels, dtype=dtype, anchors=7)
    inputs = make_input(device, **options)
    found = OPS.deformable_aggregation(*inputs)
    torch.testing.assert_close(
        found, deformable_aggregation_reference(*inputs))
    grad = torch.randn_like(found)
    for a, b in zip(
            OPS.deformable_aggregation_backward(grad, *inputs),
            deformable_aggregation_backward_reference(grad, *inputs),
            strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    *inputs, scale = make_split(device, **options)
    norm = torch.rand(2, 7, groups, device=device, dtype=dtype) + 3
    for factors in (scale, None):
        full = (*inputs, norm, factors)
        torch.testing.assert_close(
            OPS.deformable_aggregation_split(*full),
            deformable_aggregation_split_reference(*full))
        for a, b in zip(
                OPS.deformable_aggregation_split_backward(grad, *full),
                deformable_aggregation_split_backward_reference(grad, *full),
                strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@both_forms
def test_gradients_are_right(function, make, diff):
    inputs = list(make(batch=1, anchors=2, points=2, channels=2,
                       dtype=torch.float64))

    def run(*changed):
        full = list(inputs)
        for i, tensor in zip(diff, changed, strict=True):
            full[i] = tensor
        return function(*full)

    assert torch.autograd.gradcheck(
        run, [inputs[i].requires_grad_() for i in diff])


@both_forms
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_float32_result_once(
        device, function, make, diff, dtype):
    inputs = make(device, dtype=dtype)
    exact = [t if t is None or not t.is_floating_point() else t.float()
             for t in inputs]
    for a, b in zip(run(function, inputs, diff), run(function, exact, diff),
                    strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b.to(dtype))


@both_forms
def test_points_on_the_border_or_not_finite_do_not_count(
        device, function, make, diff):
    inputs = make(device)
    tiny = 1e-30
    bad = [(0., 0.5), (1., 0.5), (0.5, 0.), (0.5, 1.), (math.nan, 0.5),
           (0.5, math.inf), (-math.inf, 0.5), (-tiny, 0.5)]
    at = torch.tensor(bad, device=device)
    inputs[3].copy_(at[torch.arange(120, device=device) % 8].view(
        inputs[3].shape))
    results = run(function, inputs, diff)
    assert not any(t.any() for t in results)
    inputs[3].fill_(0.5)[..., 0] = tiny
    results = run(function, inputs, diff)
    assert results[0].any() and results[2].any()


@both_forms
def test_edges_of_shape_and_memory(device, function, make, diff):
    for options in (dict(batch=0), dict(anchors=0)):
        inputs = make(device, **options)
        results = run(function, inputs, diff)
        assert results[0].shape == (*inputs[3].shape[:2], 6)
        assert not results[1].any()
    run(function, make(device, batch=1, anchors=1, points=1, groups=1,
                       channels=1), diff)
    inputs = make(device)
    views = [None if t is None else t.transpose(0, -1).contiguous().transpose(
        0, -1) for t in inputs]
    assert not views[0].is_contiguous() and not views[3].is_contiguous()
    for a, b in zip(run(function, views, diff), run(function, inputs, diff),
                    strict=True):
        torch.testing.assert_close(a, b)


def test_cameras_that_share_their_maps_add_up(device):
    inputs = list(make_input(device))
    inputs[1] = inputs[1][:1].expand(3, 2, 2)
    inputs[2] = inputs[2][:1].expand(3, 2)
    grad = torch.randn(2, 5, 6, device=device)
    torch.testing.assert_close(
        run(deformable_aggregation, inputs, (0, ), grad)[1],
        deformable_aggregation_backward_reference(grad, *inputs)[0],
        rtol=1e-4, atol=1e-5)


@both_forms
def test_two_runs_give_the_same(device, function, make, diff):
    """Bitwise, but for the sums that CUDA adds in any order: the gradients
    of the maps and of the cameras' logits."""
    inputs = make(device, points=50, groups=4, channels=80)
    results = [run(function, inputs, diff) for _ in range(2)]
    for i, (a, b) in enumerate(zip(*results, strict=True)):
        if i in (1, 4):
            torch.testing.assert_close(a, b)
        else:
            assert torch.equal(a, b), i


@pytest.mark.skipif(not native(), reason='no native operators')
@both_forms
def test_results_do_not_depend_on_run_or_threads(function, make, diff):
    inputs = make(anchors=60, groups=2, channels=64)
    grad = torch.linspace(-1, 1, 2 * 60 * 64).view(2, 60, 64)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(run(function, inputs, diff, grad))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))


def test_operators_pass_opcheck():
    weighted = list(make_input(anchors=2))
    split = make_split(anchors=2)
    split.insert(-1, torch.zeros(2, 2, 2))
    for name, inputs in (('', weighted), ('_split', split)):
        op = getattr(OPS, f'deformable_aggregation{name}')
        back = getattr(OPS, f'deformable_aggregation{name}_backward')
        torch.library.opcheck(back.default,
                              (torch.randn(2, 2, 6), *inputs))
        for i in (0, *range(3, 5 if not name else 7)):
            inputs[i].requires_grad_()
        torch.library.opcheck(op.default, inputs)


@pytest.mark.parametrize('index, change, message', [
    (0, lambda t: t[0], 'feats'),
    (0, lambda t: t[..., :5], 'groups'),
    (1, lambda t: t[:2], 'shapes'),
    (2, lambda t: t.int(), 'starts'),
    (3, lambda t: t[:1], 'locations'),
    (4, lambda t: t[:, :1], 'weights'),
    (4, lambda t: t.long(), 'weights'),
])
def test_wrong_shapes_are_named(index, change, message):
    inputs = list(make_input())
    inputs[index] = change(inputs[index])
    with pytest.raises(ValueError, match=message):
        deformable_aggregation(*inputs)


@pytest.mark.parametrize('index, message', [(4, 'anchor_logits'),
                                            (5, 'camera_logits'),
                                            (6, 'scale')])
def test_wrong_shapes_of_the_split_form_are_named(index, message):
    inputs = make_split()
    inputs[index] = inputs[index][:, :1]
    with pytest.raises(ValueError, match=message):
        deformable_aggregation_split(*inputs)


def test_maps_that_reach_out_of_the_cells_are_an_error():
    inputs = list(make_input())
    inputs[3].fill_(0.9)
    inputs[0] = inputs[0][:, :-3]
    with pytest.raises((RuntimeError, IndexError), match=r'map|index'):
        deformable_aggregation(*inputs)
