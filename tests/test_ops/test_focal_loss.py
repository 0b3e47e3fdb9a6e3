"""Sigmoid and softmax focal losses."""

import math

import pytest
import torch

from mmturbox.ops import focal_loss as module
from mmturbox.ops import (
    sigmoid_focal_loss,
    sigmoid_focal_loss_fused,
    softmax_focal_loss,
    softmax_focal_loss_fused,
)

OPS = torch.ops.mmturbox
BOTH = [sigmoid_focal_loss, softmax_focal_loss]
GAMMAS = [0.0, 0.5, 1.0, 2.0, 3.5]
FUSED = [sigmoid_focal_loss_fused, softmax_focal_loss_fused]
NAMES = ['sigmoid_focal_loss', 'softmax_focal_loss']


def make_input(rows=40, classes=6, dtype=torch.float32, spread=3.0):
    """Logits, labels with background on both sides, class weights."""
    generator = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, classes, generator=generator) * spread
    target = torch.randint(-1, classes + 1, (rows, ), generator=generator)
    weight = torch.rand(classes, generator=generator)
    return logits.to(dtype), target, weight.to(dtype)


def log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > -30 else x


def plain_sigmoid(logits, target, weight, gamma, alpha):
    """Independent of the package: Python floats, element by element."""
    out = []
    for row, label in zip(logits.double().tolist(), target.tolist(),
                          strict=True):
        scale = float(weight[label]) if 0 <= label < len(row) else 1
        for k, x in enumerate(row):
            x, a = (x, alpha) if k == label else (-x, 1 - alpha)
            q = math.exp(log_sigmoid(-x))
            out.append(-scale * a * q**gamma * log_sigmoid(x))
    return torch.tensor(out, dtype=torch.float64).view(logits.shape)


def plain_softmax(logits, target, weight, gamma, alpha):
    out = []
    for row, label in zip(logits.double().tolist(), target.tolist(),
                          strict=True):
        if not 0 <= label < len(row):
            out.append(0.0)
            continue
        p = math.exp(row[label]) / sum(math.exp(x) for x in row)
        out.append(-float(weight[label]) * alpha * (1 - p)**gamma *
                   math.log(p))
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize('gamma', GAMMAS)
@pytest.mark.parametrize('loss, plain', [
    (sigmoid_focal_loss, plain_sigmoid), (softmax_focal_loss, plain_softmax)])
def test_losses_match_plain_python(loss, plain, gamma):
    logits, target, weight = make_input(dtype=torch.float64)
    expected = plain(logits, target, weight, gamma, 0.3)
    found = loss(logits, target, gamma, 0.3, weight, 'none')
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        loss(logits.float(), target, gamma, 0.3, weight.float(), 'none'),
        expected.float(), rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(
        loss(logits, target, gamma, 0.3, weight, 'mean'),
        expected.sum() / len(logits))
    torch.testing.assert_close(
        loss(logits, target, gamma, 0.3, weight, 'sum'), expected.sum())


@pytest.mark.parametrize('gamma', GAMMAS)
@pytest.mark.parametrize('weights', ['none', 'rows', 'values'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('dense', [False, True])
def test_sigmoid_kernels_equal_the_reference(device, dense, dtype, weights,
                                             gamma):
    logits, target, _ = make_input(401, 7, dtype, spread=6)
    if dense:
        target = torch.rand_like(logits).clamp(0.2, 0.8) * 5 / 3 - 1 / 3
    weight = dict(none=None, rows=torch.rand(401).to(dtype),
                  values=torch.rand(401, 7).to(dtype))[weights]
    assert_kernel_equals_reference('sigmoid_focal_loss', device, logits,
                                   target, weight, gamma)


@pytest.mark.parametrize('gamma', GAMMAS)
@pytest.mark.parametrize('classes', [1, 6, 45])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_softmax_kernels_equal_the_reference(device, dtype, classes, gamma):
    logits, target, _ = make_input(61, classes, dtype, spread=6)
    for weight in (None, torch.rand(61).to(dtype)):
        assert_kernel_equals_reference('softmax_focal_loss', device, logits,
                                       target, weight, gamma)


def assert_kernel_equals_reference(name, device, logits, target, weight,
                                   gamma):
    tensors = [None if t is None else t.to(device) for t in
               (logits, target, weight, torch.tensor([9.5]))]
    for reduce in (False, True):
        for with_slope in (True, False):
            arguments = (*tensors, gamma, 0.25, 3.0, reduce, with_slope)
            found = getattr(OPS, name)(*arguments)
            expected = getattr(module, f'{name}_reference')(*arguments)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('gamma', [0.0, 1.0, 2.0, 3.5])
@pytest.mark.parametrize('loss', BOTH)
def test_gradients_are_right(loss, gamma):
    logits, target, weight = make_input(8, 4, torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: loss(x, target, gamma, 0.25, weight, 'none'),
        logits.requires_grad_())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16,
                                   torch.float32])
@pytest.mark.parametrize('gamma', [0.0, 2.0])
@pytest.mark.parametrize('loss', BOTH)
def test_large_logits_are_finite_and_match_float64(loss, gamma, dtype):
    """KF-A11: logits from -100 to 100, loss and gradient."""
    logits = torch.linspace(-100, 100, 402).to(dtype)
    logits = torch.stack((logits, -logits), dim=1)
    target = torch.arange(len(logits)) % 3 - 1
    results = {}
    for kind in (dtype, torch.float64):
        x = logits.detach().to(kind).clone().requires_grad_()
        out = loss(x, target, gamma, 0.25, None, 'none')
        out.sum().backward()
        results[kind] = (out.detach(), x.grad)
    step = torch.finfo(dtype).eps
    for found, exact in zip(*results.values(), strict=True):
        assert found.dtype == dtype and bool(found.isfinite().all())
        torch.testing.assert_close(
            found.double(), exact, rtol=max(2 * step, 2e-5),
            atol=max(torch.finfo(dtype).tiny, 1e-7))


def test_the_reported_pair_of_float16_logits_is_finite():
    """KF-A11."""
    logits = torch.tensor([[9.3906, -4.2344]], dtype=torch.float16,
                          requires_grad=True)
    for label in (-1, 0, 1, 2):
        loss = sigmoid_focal_loss(logits, torch.tensor([label]))
        loss.backward()
        assert bool(loss.isfinite())
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('loss', BOTH)
def test_half_precision_rounds_the_float32_result_once(loss, dtype):
    logits, target, weight = make_input(dtype=dtype)
    found = loss(logits, target, 2.0, 0.25, weight, 'none')
    exact = loss(logits.float(), target, 2.0, 0.25, weight.float(), 'none')
    assert torch.equal(found, exact.to(dtype))


@pytest.mark.parametrize('loss', BOTH)
@pytest.mark.parametrize('label', [-1, 6, 100, -7])
def test_labels_outside_of_the_classes_are_background(loss, label):
    logits, _, weight = make_input(5)
    target = torch.full((5, ), label)
    found = loss(logits, target, 2.0, 0.25, weight, 'none')
    if loss is softmax_focal_loss:
        assert not found.any()
    else:
        p = logits.sigmoid()
        torch.testing.assert_close(found, -0.75 * p**2 * (1 - p).log())


@pytest.mark.parametrize('loss', BOTH)
def test_edges_of_shape_and_memory(loss):
    empty = torch.zeros(0, 3, requires_grad=True)
    loss(empty, torch.zeros(0).long(), 2.0, 0.25, None, 'sum').backward()
    assert empty.grad.shape == (0, 3)
    logits, target, weight = make_input(30, 8)
    views = (logits[::2, ::2], target[::2] // 2)
    assert not views[0].is_contiguous()
    assert torch.equal(
        loss(*views, 2.0, 0.25, weight[::2], 'none'),
        loss(*(v.contiguous() for v in views), 2.0, 0.25,
             weight[::2].contiguous(), 'none'))
    one = loss(logits[:1, :1], target[:1] * 0, 2.0, 0.25, None, 'none')
    assert one.numel() == 1


@pytest.mark.parametrize('loss', FUSED)
def test_runs_and_numbers_of_threads_are_bitwise_equal(device, loss):
    logits, target, _ = make_input(700)
    weight = torch.rand(700, device=device)
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            x = logits.to(device, copy=True).requires_grad_()
            out = loss(x, target.to(device), weight)
            out.backward()
            runs.append((out, x.grad))
    finally:
        torch.set_num_threads(before)
    for out, grad in runs[1:]:
        assert torch.equal(out, runs[0][0])
        assert torch.equal(grad, runs[0][1])


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('reduce', [False, True])
def test_operators_pass_opcheck(name, reduce):
    logits, target, _ = make_input(6, 3)
    torch.library.opcheck(
        getattr(OPS, name).default,
        (logits.requires_grad_(), target, torch.rand(6), torch.tensor(2.0),
         2.0, 0.25, 1.5, reduce, True))


@pytest.mark.parametrize('loss', BOTH)
@pytest.mark.parametrize('change, message', [
    (dict(target=torch.zeros(3).long()), 'shapes'),
    (dict(target=torch.zeros(4).int()), 'int64'),
    (dict(weight=torch.ones(3)), 'weight'),
    (dict(weight=torch.ones(2, device='meta')), 'device'),
    (dict(reduction='all'), 'reduction'),
])
def test_bad_arguments_are_named(loss, change, message):
    arguments = dict(input=torch.rand(4, 2), target=torch.zeros(4).long())
    with pytest.raises(ValueError, match=message):
        loss(**(arguments | change))


@pytest.mark.parametrize('loss', FUSED)
def test_weight_normaliser_and_factor_are_applied(loss):
    logits, target, _ = make_input(20)
    weight = torch.rand(20)
    plain = dict(zip(FUSED, BOTH, strict=True))[loss]
    values = plain(logits, target, reduction='none')
    weighted = values * (weight[:, None] if values.dim() == 2 else weight)
    options = (logits, target, weight, 2.0, 0.25)
    torch.testing.assert_close(
        loss(*options, 'none', None, 3.0), weighted * 3)
    torch.testing.assert_close(
        loss(*options, 'none', 7, 3.0), weighted * 3)
    torch.testing.assert_close(loss(*options, 'sum'), weighted.sum())
    torch.testing.assert_close(loss(*options, 'mean'), weighted.mean())
    for shape in ((), (1, )):
        factor = torch.full(shape, 7.0)
        found = loss(*options, 'mean', factor, 3.0)
        assert found.shape == shape
        torch.testing.assert_close(found, weighted.sum().view(shape) * 3 / 7)
    torch.testing.assert_close(
        loss(*options, 'mean', 7), weighted.sum() / 7)
    # No positives anywhere: nothing is divided by zero.
    assert bool(loss(*options, 'mean', torch.tensor(0.0)).isfinite())
    with pytest.raises(ValueError, match='sum'):
        loss(*options, 'sum', 7)
    with pytest.raises(ValueError, match='weight'):
        loss(logits, target, weight[:3])
    with pytest.raises(ValueError, match='one element'):
        loss(*options, 'mean', torch.ones(2))


@pytest.mark.parametrize('loss', FUSED)
def test_half_precision_keeps_small_gradients(loss):
    """The sum stays in float32, so that a scaled loss does not overflow."""
    logits, target, _ = make_input(40, dtype=torch.float16)
    x = logits.clone().requires_grad_()
    out = loss(x, target, avg_factor=1e6)
    assert out.dtype == torch.float32
    (out * 65536).backward()
    y = logits.float().requires_grad_()
    (loss(y, target, avg_factor=1e6) * 65536).backward()
    assert torch.equal(x.grad, y.grad.half()) and bool(x.grad.any())


@pytest.mark.parametrize('shape', [(5, ), (2, 3, 4, 5), (0, 3)])
def test_dense_targets_of_any_shape(shape):
    logits, target = torch.randn(shape), torch.rand(shape) > 0.5
    expected = sigmoid_focal_loss_fused(
        logits.reshape(-1, 1), 1 - target.reshape(-1).long(),
        reduction='none')
    found = sigmoid_focal_loss_fused(logits, target, reduction='none')
    assert found.shape == shape
    torch.testing.assert_close(found.reshape(-1, 1), expected)


def test_no_gradient_is_computed_or_needed_without_grad_mode():
    logits, target, _ = make_input(10)
    with torch.no_grad():
        x = logits.clone().requires_grad_()
        assert not sigmoid_focal_loss_fused(x, target).requires_grad
    loss = OPS.sigmoid_focal_loss(x, target, None, None, 2.0, 0.25, 1.0, True,
                                  False)[0]
    with pytest.raises(RuntimeError, match='with_slope'):
        loss.backward()


@pytest.mark.parametrize('weighted', [False, True])
@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('reduction', ['none', 'mean', 'sum'])
def test_mmcv_layers_run_over_it(name, weighted, reduction):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    logits, target, weight = make_input(20)
    options = (target, 2.0, 0.25, weight if weighted else None, reduction)
    # With 'none' mmcv's softmax gradient only serves a constant grad.
    x, y = (logits.clone().requires_grad_() for _ in range(2))
    theirs = getattr(mmcv_ops, name)(x, *options)
    ours = getattr(module, name)(y, *options)
    torch.testing.assert_close(theirs, ours)
    if reduction == 'none' and name == 'softmax_focal_loss':
        return
    theirs.sum().backward()
    ours.sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
