"""Weighted sum of three points' features."""

import pytest
import torch

from mmturbox.ops import OPERATORS, three_interpolate

OPS = torch.ops.mmturbox


def make_input(points=30, targets=70, channels=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(points)
    features = torch.randn(2, channels, points, generator=generator)
    index = torch.randint(points, (2, targets, 3), generator=generator)
    weight = torch.rand(2, targets, 3, generator=generator)
    weight /= weight.sum(2, keepdim=True)
    return features.to(dtype), index.int(), weight.to(dtype)


def plain_interpolate(features, index, weight):
    batch = torch.arange(len(index))[:, None, None]
    taken = features.transpose(1, 2)[batch, index.long()]
    return (taken * weight[..., None]).sum(2).transpose(1, 2)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('points, targets, channels', [
    (30, 70, 5), (300, 520, 33), (1, 40, 1), (7, 0, 3)])
def test_forward_and_backward_match_a_plain_sum(device, dtype, points,
                                                targets, channels):
    features, index, weight = make_input(points, targets, channels, dtype)
    leaf = features.clone().requires_grad_()
    want = plain_interpolate(leaf, index, weight)
    grad = torch.randn(want.shape, dtype=dtype)
    want.backward(grad)
    features = features.to(device).requires_grad_()
    out = three_interpolate(features, index.to(device), weight.to(device))
    out.backward(grad.to(device))
    torch.testing.assert_close(out.cpu(), want)
    torch.testing.assert_close(features.grad.cpu(), leaf.grad)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(device, dtype):
    features, index, weight = make_input(dtype=dtype)
    want = plain_interpolate(features.float(), index, weight.float())
    features = features.to(device).requires_grad_()
    out = three_interpolate(features, index.to(device), weight.to(device))
    assert out.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.cpu().float(), want, rtol=eps, atol=1e-5)
    out.backward(torch.ones_like(out))
    want = torch.zeros(2, 30).scatter_add_(
        1, index.flatten(1).long(), weight.float().flatten(1))
    torch.testing.assert_close(
        features.grad.cpu().float(), want[:, None].expand(-1, 5, -1),
        rtol=eps, atol=1e-5)


def test_indices_outside_count_as_zero(device):
    features, index, weight = (x.to(device) for x in make_input())
    broken = index.clone()
    broken[:, ::3, 1], broken[:, ::4, 2] = -1, 30
    features.requires_grad_()
    out = three_interpolate(features, broken, weight)
    outside = (broken < 0) | (broken > 29)
    masked = torch.where(outside, 0, weight)
    want = three_interpolate(features, index, masked)
    assert torch.equal(out, want)
    torch.testing.assert_close(
        *(torch.autograd.grad(x.square().sum(), features)[0]
          for x in (out, want)))


def test_native_equals_the_reference_bitwise(device):
    arguments = [x.to(device) for x in make_input()]
    assert torch.equal(
        OPS.three_interpolate(*arguments),
        OPERATORS['three_interpolate'](*arguments))


def test_gradcheck_of_features_and_weights(device):
    features, index, weight = (
        x.to(device) for x in make_input(6, 5, 2, torch.float64))
    index[0, 0, 0] = -1
    torch.autograd.gradcheck(
        lambda x, w: three_interpolate(x, index, w),
        (features.requires_grad_(), weight.requires_grad_()))


def test_strided_inputs_and_int64(device):
    features, index, weight = (x.to(device) for x in make_input())
    views = [x.transpose(1, 2).contiguous().transpose(1, 2)
             for x in (features, index.long(), weight)]
    assert torch.equal(
        three_interpolate(*views),
        three_interpolate(features, index, weight))


def test_results_do_not_depend_on_the_number_of_threads():
    features, index, weight = make_input(200, 3000, 40)
    features.requires_grad_()
    threads, grads = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            out = three_interpolate(features, index, weight)
            grads += torch.autograd.grad(out.square().sum(), features)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*grads)


@pytest.mark.parametrize('place, value, message', [
    (0, torch.zeros(5, 30), 'features'),
    (1, torch.zeros(2, 70, 2).int(), 'indices'),
    (2, torch.zeros(2, 60, 3), 'weight'),
    (2, torch.zeros(2, 70, 3).double(), 'dtype'),
    (1, torch.zeros(2, 70, 3), 'int32 or int64'),
])
def test_wrong_input_is_named(place, value, message):
    arguments = list(make_input())
    arguments[place] = value
    with pytest.raises(ValueError, match=message):
        three_interpolate(*arguments)


def test_operators_pass_opcheck():
    features, index, weight = make_input(9, 7, 3)
    torch.library.opcheck(
        OPS.three_interpolate.default,
        (features.requires_grad_(), index, weight.requires_grad_()))
    torch.library.opcheck(OPS.three_interpolate_backward.default,
                          (torch.randn(2, 3, 7), index, weight.detach(), 9))
