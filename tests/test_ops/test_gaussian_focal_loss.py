"""Focal loss for heat maps."""

import importlib
import math

import pytest
import torch

from mmturbox.ops import gaussian_focal_loss

MODULE = importlib.import_module('mmturbox.ops.gaussian_focal_loss')
OP = torch.ops.mmturbox.gaussian_focal_loss
EXPONENTS = [(2.0, 4.0), (1.5, 3.0), (1.0, 0.0)]


def make_input(count=40, dtype=torch.float32):
    """Probabilities and targets with peaks and with zeros."""
    generator = torch.Generator().manual_seed(count)
    pred = torch.rand(count, generator=generator) * 0.998 + 0.001
    target = torch.rand(count, generator=generator) * 1.4 - 0.2
    return pred.to(dtype), target.clamp(0, 1).to(dtype)


def plain(pred, target, alpha, gamma, pos_weight, neg_weight):
    """Independent of the package: Python floats, element by element."""
    out = []
    for p, t in zip(pred.tolist(), target.tolist(), strict=True):
        loss = -math.log(1 - p + 1e-12) * p**alpha * (1 - t)**gamma
        loss *= neg_weight
        if t == 1:
            loss -= pos_weight * math.log(p + 1e-12) * (1 - p)**alpha
        out.append(loss)
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize('alpha, gamma', EXPONENTS)
def test_loss_matches_plain_python(alpha, gamma):
    pred, target = make_input(dtype=torch.float64)
    expected = plain(pred, target, alpha, gamma, 1.5, 0.5)
    options = (None, alpha, gamma, 1.5, 0.5)
    torch.testing.assert_close(
        gaussian_focal_loss(pred, target, *options, 'none'), expected)
    torch.testing.assert_close(
        gaussian_focal_loss(pred.float(), target.float(), *options, 'none'),
        expected.float(), rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(
        gaussian_focal_loss(pred, target, *options), expected.mean())


@pytest.mark.parametrize('alpha, gamma', EXPONENTS)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_kernels_equal_the_reference(device, dtype, alpha, gamma):
    pred, target = (t.view(1, -1).to(device)
                    for t in make_input(5003, dtype))
    normalizer = torch.tensor(9.5, device=device)
    for weight in (None, torch.rand_like(pred)):
        for reduce in (False, True):
            arguments = (pred, target, weight, normalizer, alpha, gamma, 1.5,
                         0.5, 3.0, reduce, True)
            expected = MODULE.gaussian_focal_loss_reference(*arguments)
            for one, other in zip(OP(*arguments), expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('alpha, gamma', EXPONENTS)
def test_gradients_are_right(alpha, gamma):
    pred, target = make_input(8, torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: gaussian_focal_loss(x, target, None, alpha, gamma, 1.5, 0.5,
                                      'none'), pred.requires_grad_())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    """KF-A11: probabilities of 0 and 1 stay finite."""
    pred = torch.tensor([0.0, 1.0, 0.3, 1.0, 0.0, 0.7]).to(dtype)
    target = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.4]).to(dtype)
    x = pred.clone().requires_grad_()
    y = pred.float().requires_grad_()
    out = gaussian_focal_loss(x, target, avg_factor=1e4)
    exact = gaussian_focal_loss(y, target.float(), avg_factor=1e4)
    assert out.dtype == torch.float32 and torch.equal(out, exact)
    out.backward()
    exact.backward()
    # The slope at an impossible peak, 1e12, is beyond float16 itself.
    near = (y.grad.abs() < 1e4)
    assert bool(out.isfinite()) and int(near.sum()) == 4
    assert torch.equal(x.grad[near], y.grad[near].to(dtype))


@pytest.mark.parametrize('shape', [(), (0, ), (1, ), (2, 3, 5, 7)])
def test_shapes_strides_and_reductions(shape):
    pred, target = torch.rand(shape), torch.rand(shape)
    weight = torch.rand(shape)
    values = gaussian_focal_loss(pred, target, weight, reduction='none')
    assert values.shape == shape
    torch.testing.assert_close(
        gaussian_focal_loss(pred, target, weight, reduction='sum'),
        values.sum())
    torch.testing.assert_close(
        gaussian_focal_loss(pred, target, weight, avg_factor=torch.tensor(5),
                            loss_weight=2.0), values.sum() * 2 / 5)
    if len(shape) == 4:
        flipped = [t.permute(3, 1, 2, 0) for t in (pred, target, weight)]
        torch.testing.assert_close(
            gaussian_focal_loss(*flipped, reduction='none'),
            values.permute(3, 1, 2, 0))


def test_runs_and_numbers_of_threads_are_bitwise_equal(device):
    pred, target = (t.to(device) for t in make_input(20011))
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            x = pred.clone().requires_grad_()
            out = gaussian_focal_loss(x, target)
            out.backward()
            runs.append((out, x.grad))
    finally:
        torch.set_num_threads(before)
    for out, grad in runs[1:]:
        assert torch.equal(out, runs[0][0])
        assert torch.equal(grad, runs[0][1])


@pytest.mark.parametrize('reduce', [False, True])
def test_operator_passes_opcheck(reduce):
    pred, target = (t.view(2, -1) for t in make_input(6))
    torch.library.opcheck(
        OP.default, (pred.requires_grad_(), target, torch.rand(2, 3),
                     torch.tensor(2.0), 2.0, 4.0, 1.0, 1.0, 1.5, reduce,
                     True))


def test_bad_arguments_are_named():
    pred, target = make_input(4)
    with pytest.raises(ValueError, match='target must have the shape'):
        gaussian_focal_loss(pred, target[:3])
    with pytest.raises(ValueError, match='weight must have the shape'):
        gaussian_focal_loss(pred, target, target[:1])
    with pytest.raises(ValueError, match='floating'):
        gaussian_focal_loss(pred.long(), target)
    with pytest.raises(ValueError, match='device'):
        gaussian_focal_loss(pred, target.to('meta'))
