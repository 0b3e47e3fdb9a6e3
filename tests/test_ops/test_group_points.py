"""Gathering and grouping of point features."""

import pytest
import torch

from mmturbox.ops import OPERATORS, gather_points, group_points

OPS = torch.ops.mmturbox
HALVES = [torch.float16, torch.bfloat16]


def make_input(points=50, picks=90, channels=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(points)
    features = torch.randn(2, channels, points, generator=generator)
    index = torch.randint(-2, points + 2, (2, picks), generator=generator)
    return features.to(dtype), index.int()


def make_stacked(dtype=torch.float32, channels=5):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, channels, generator=generator).to(dtype)
    index = torch.randint(-1, 45, (30, 4), generator=generator).int()
    return (features, torch.tensor([40, 0, 20]).int(), index,
            torch.tensor([11, 4, 15]).int())


def plain_gather(features, index):
    out = features.new_zeros(*features.shape[:2], index.shape[1])
    for b, i in ((b, i) for b in range(len(index)) for i in range(
            index.shape[1])):
        if 0 <= index[b, i] < features.shape[2]:
            out[b, :, i] = features[b, :, index[b, i]]
    return out


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, *HALVES])
def test_gathering_takes_points_and_zero_from_outside(device, dtype):
    features, index = make_input(dtype=dtype)
    want = plain_gather(features, index)
    for kind in (torch.int32, torch.int64):
        found = gather_points(features.to(device), index.to(device, kind))
        assert torch.equal(found.cpu(), want) and found.dtype == dtype
    index = index.view(2, 15, 6).to(device)
    found = group_points(features.to(device), index)
    assert torch.equal(found.cpu(), want.view(2, 5, 15, 6))
    far = torch.full((2, 1), 2**40, device=device)
    assert not gather_points(features.to(device), far).any()


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('points, picks, channels', [
    (50, 90, 5), (300, 700, 33), (1, 40, 1), (7, 0, 3), (0, 3, 2)])
def test_forward_and_backward_match_the_reference(device, dtype, points,
                                                  picks, channels):
    features, index = (x.to(device) for x in make_input(
        points, picks, channels, dtype))
    features.requires_grad_()
    out = gather_points(features, index)
    assert torch.equal(out, OPERATORS['gather_points'](features, index))
    grad = torch.randn(out.shape, dtype=dtype).to(device)
    out.backward(grad)
    want = OPERATORS['gather_points_backward'](grad, index, points)
    torch.testing.assert_close(features.grad, want)


@pytest.mark.parametrize('dtype', HALVES)
def test_gradients_of_half_precision_are_summed_in_float32(device, dtype):
    features = torch.zeros(1, 1, 2, dtype=dtype, device=device,
                           requires_grad=True)
    index = torch.zeros(1, 3000, dtype=torch.int32, device=device)
    gather_points(features, index).sum().backward()
    want = torch.tensor([[[3000, 0]]], dtype=dtype)
    assert torch.equal(features.grad.cpu(), want)
    stacked = torch.zeros(2, 1, dtype=dtype, device=device,
                          requires_grad=True)
    counts = torch.tensor([2]).int().to(device)
    group_points(stacked, index.view(1000, 3), counts,
                 counts * 500).sum().backward()
    assert torch.equal(stacked.grad.cpu(), want[0].t())


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, *HALVES])
def test_stacked_groups_come_from_their_own_sample(device, dtype):
    arguments = [x.to(device) for x in make_stacked(dtype)]
    features, counts, index, index_counts = arguments
    found = group_points(features, index, counts, index_counts)
    want = torch.cat([
        plain_gather(cloud.t()[None], part.flatten()[None])[0].unflatten(
            1, (-1, 4)).transpose(0, 1)
        for cloud, part in zip(
            features.cpu().split(counts.tolist()),
            index.cpu().split(index_counts.tolist()), strict=True)
    ])
    assert found.shape == (30, 5, 4) and torch.equal(found.cpu(), want)
    reference = OPERATORS['group_points_stacked'](features, counts, index,
                                                  index_counts)
    assert torch.equal(found, reference)


@pytest.mark.parametrize('channels', [1, 5, 40])
def test_stacked_gradients_match_the_reference(device, channels):
    features, counts, index, index_counts = (
        x.to(device) for x in make_stacked(channels=channels))
    features.requires_grad_()
    out = group_points(features, index, counts, index_counts)
    grad = torch.randn(out.shape).to(device)
    out.backward(grad)
    want = OPERATORS['group_points_stacked_backward'](
        grad, counts, index, index_counts, 60)
    torch.testing.assert_close(features.grad, want)


@pytest.mark.parametrize('counts, index_counts', [
    ([10, 5], [10, 5]), ([999, 9], [999, 9]), ([60, 7], [30, 9]), ([], [])])
def test_stacked_counts_that_do_not_fit(device, counts, index_counts):
    features, _, index, _ = (x.to(device) for x in make_stacked())
    counts, index_counts = (
        torch.tensor(x, dtype=torch.int32, device=device)
        for x in (counts, index_counts))
    features.requires_grad_()
    out = group_points(features, index, counts, index_counts)
    reference = OPERATORS['group_points_stacked'](features, counts, index,
                                                  index_counts)
    assert torch.equal(out, reference)
    out.sum().backward()
    want = OPERATORS['group_points_stacked_backward'](
        torch.ones_like(out), counts, index, index_counts, 60)
    torch.testing.assert_close(features.grad, want)


def test_gradcheck(device):
    features, index = make_input(4, 5, 1, torch.float64)
    torch.autograd.gradcheck(
        lambda x: gather_points(x, index.to(device)),
        features.to(device).requires_grad_())
    features, *rest = (
        x.to(device) for x in make_stacked(torch.float64, 1))
    torch.autograd.gradcheck(
        lambda x: group_points(x, rest[1], rest[0], rest[2]),
        features.requires_grad_())


def test_strided_inputs(device):
    features, index = (x.to(device) for x in make_input())
    found = gather_points(
        features.transpose(1, 2).contiguous().transpose(1, 2),
        index.t().contiguous().t())
    assert torch.equal(found, gather_points(features, index))


def test_results_do_not_depend_on_the_number_of_threads():
    features, index = make_input(300, 4000, 70)
    features.requires_grad_()
    threads, grads = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            out = gather_points(features, index)
            grads += torch.autograd.grad(out.square().sum(), features)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*grads)


COUNT = torch.tensor([1]).int()


@pytest.mark.parametrize('arguments, message', [
    ((torch.zeros(3, 4), torch.zeros(1, 2, 2).int()), 'features'),
    ((torch.zeros(1, 3, 4), torch.zeros(1, 2).int()), 'indices'),
    ((torch.zeros(1, 3, 4), torch.zeros(2, 2, 2).int()), 'indices'),
    ((torch.zeros(1, 3, 4), torch.zeros(1, 2, 2)), 'int32 or int64'),
    ((torch.zeros(3, 4), torch.zeros(2, 2).int(), COUNT), 'both'),
    ((torch.zeros(3, 4), torch.zeros(2, 2).int(), COUNT, COUNT.long()),
     'counts'),
    ((torch.zeros(1, 3, 4), torch.zeros(2, 2).int(), COUNT, COUNT),
     'features'),
    ((torch.zeros(3, 4), torch.zeros(2).int(), COUNT, COUNT), 'indices'),
])
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        group_points(*arguments)


def test_operators_pass_opcheck():
    features, index = make_input(9, 12, 3)
    torch.library.opcheck(OPS.gather_points.default,
                          (features.requires_grad_(), index))
    torch.library.opcheck(OPS.gather_points_backward.default,
                          (torch.randn(2, 3, 12), index, 9))
    features, counts, index, index_counts = make_stacked()
    torch.library.opcheck(
        OPS.group_points_stacked.default,
        (features.requires_grad_(), counts, index, index_counts))
    torch.library.opcheck(
        OPS.group_points_stacked_backward.default,
        (torch.randn(30, 5, 4), counts, index, index_counts, 60))
