"""Deformable attention over lists of camera and query pairs."""

import pytest
import torch
from test_ms_deform_attn import assert_repeats, both_weights, make_input

from mmturbox.ops import (
    ms_deform_attn,
    ms_deform_attn_ragged,
    native,
    pack_hits,
)
from mmturbox.ops.ms_deform_attn import (
    ms_deform_attn_backward_reference,
    ms_deform_attn_reference,
)

OPS = torch.ops.mmturbox


def make_hits(device='cpu', queries=23, images=3, room=9, **options):
    """Maps of three images, hits of 23 queries and some room behind them."""
    draw = torch.Generator().manual_seed(7)
    mask = torch.rand(queries, images, generator=draw) < 0.4
    mask[4] = mask[-1] = False
    mask[5] = True
    capacity = int(mask.sum()) + room
    query, image, offsets = pack_hits(mask.to(device), capacity)
    value, shapes, starts, locations, weights = make_input(
        device, batch=images, queries=capacity, **options)
    return mask, query, (value, shapes, starts, locations[0], weights[0],
                         image, offsets)


def grads_of(inputs, softmax, grad=None):
    leaves = [inputs[i].detach().clone().requires_grad_() for i in (0, 3, 4)]
    out = ms_deform_attn_ragged(leaves[0], *inputs[1:3], *leaves[1:],
                                *inputs[5:], softmax)
    out.backward(torch.ones_like(out) if grad is None else grad)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def test_hits_are_listed_by_query_and_then_image(device):
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]]).bool().to(device)
    expected = ([0, 0, 2], [0, 2, 1], [0, 2, 2, 3])
    assert tuple(t.tolist() for t in pack_hits(mask)) == expected
    query, image, offsets = pack_hits(mask, 5)
    assert offsets.tolist() == expected[2]
    assert (query[:3].tolist(), image[:3].tolist()) == expected[:2]
    assert not query[3:].any() and not image[3:].any()


def test_hits_beyond_the_capacity_are_left_out_from_the_end(device):
    mask = torch.ones(3, 2, dtype=torch.bool, device=device)
    query, image, offsets = pack_hits(mask, 3)
    assert query.tolist() == [0, 0, 1] and image.tolist() == [0, 1, 0]
    assert offsets.tolist() == [0, 2, 3, 3]


def test_nothing_to_list(device):
    for shape in ((0, 3), (3, 0), (2, 2)):
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
        for capacity in (None, 4):
            query, image, offsets = pack_hits(mask, capacity)
            assert len(query) == len(image) == (capacity or 0)
            assert offsets.tolist() == [0] * (shape[0] + 1)


@pytest.mark.parametrize('mask', [torch.zeros(3, 3), torch.zeros(3).bool()])
def test_a_mask_of_another_kind_is_named(mask):
    with pytest.raises(ValueError, match='mask'):
        pack_hits(mask)


@both_weights
def test_mean_over_the_images_equals_attention_image_by_image(
        device, softmax):
    mask, query, inputs = make_hits(device)
    value, shapes, starts, locations, weights, image, offsets = inputs
    hits = int(mask.sum())
    expected = torch.zeros(23, 15, device=device)
    for t in range(hits):
        i = int(image[t])
        expected[query[t]] += ms_deform_attn(
            value[i:i + 1], shapes, starts, locations[None, t:t + 1],
            weights[None, t:t + 1], softmax)[0, 0]
    expected /= mask.sum(1, keepdim=True).clamp(min=1).to(device)
    found = ms_deform_attn_ragged(*inputs, softmax)
    torch.testing.assert_close(found, expected)
    assert not found[4].any() and not found[-1].any()


@both_weights
@pytest.mark.parametrize('channels', [5, 32])
def test_kernels_equal_the_reference(device, softmax, channels):
    inputs = make_hits(device, channels=channels)[2]
    found = OPS.ms_deform_attn(*inputs, softmax)
    torch.testing.assert_close(found,
                               ms_deform_attn_reference(*inputs, softmax))
    grad = torch.randn_like(found)
    for a, b in zip(
            OPS.ms_deform_attn_backward(grad, *inputs, softmax),
            ms_deform_attn_backward_reference(grad, *inputs, softmax),
            strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_gradients_are_right():
    inputs = make_hits(queries=6, heads=1, channels=2, points=1, room=2,
                       dtype=torch.float64)[2]
    assert torch.autograd.gradcheck(
        lambda v, at, w: ms_deform_attn_ragged(
            v, *inputs[1:3], at, w, *inputs[5:], True),
        [inputs[i].requires_grad_() for i in (0, 3, 4)])


@both_weights
def test_what_stands_behind_the_last_hit_is_not_read(device, softmax):
    mask, _, inputs = make_hits(device)
    expected = grads_of(inputs, softmax)
    hits = int(mask.sum())
    for i, bad in ((3, float('nan')), (4, float('nan')), (5, 99)):
        inputs[i][hits:] = bad
    found = grads_of(inputs, softmax)
    assert_repeats(found, expected)
    assert not found[2][hits:].any() and not found[3][hits:].any()


def test_no_hits_and_no_queries(device):
    for queries in (0, 4):
        _, _, inputs = make_hits(device)
        inputs = [*inputs[:3], *(t[:0] for t in inputs[3:6]),
                  torch.zeros(queries + 1, dtype=torch.int64, device=device)]
        out, grad, *_ = grads_of(inputs, True)
        assert out.shape == (queries, 15) and not out.any()
        assert not grad.any()


@pytest.mark.skipif(not native(), reason='no native operators')
def test_results_do_not_depend_on_run_or_threads():
    inputs = make_hits(queries=300, channels=32)[2]
    grad = torch.linspace(-1, 1, 300 * 96).view(300, 96)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(grads_of(inputs, True, grad))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))


def test_operator_passes_opcheck():
    inputs = list(make_hits(queries=7, channels=4)[2])
    for i in (0, 3, 4):
        inputs[i].requires_grad_()
    torch.library.opcheck(OPS.ms_deform_attn.default, (*inputs, True))


@pytest.mark.parametrize('index, change, message', [
    (3, lambda t: t[None], 'locations'),
    (4, lambda t: t[:-1], 'weights'),
    (5, lambda t: t[:-1], 'images'),
    (5, lambda t: t.int(), 'images'),
    (6, lambda t: t[:0], 'offsets'),
    (6, lambda t: t.float(), 'offsets'),
])
def test_wrong_shapes_are_named(index, change, message):
    inputs = list(make_hits()[2])
    inputs[index] = change(inputs[index])
    with pytest.raises(ValueError, match=message):
        ms_deform_attn_ragged(*inputs)
