"""Twins of mmdet's focal losses: same loss and gradient."""

import pytest
import torch
from mmengine.registry import MODELS

from mmturbox.testing.center_point import import_mmdet3d

CLOSE = dict(rtol=2e-5, atol=1e-7)
REDUCTIONS = [('none', None), ('sum', None), ('mean', None), ('mean', 7.0),
              ('mean', torch.tensor(7.0)), ('mean', torch.tensor([7.0])),
              ('none', 3.0)]
every_reduction = pytest.mark.parametrize('reduction, avg_factor', REDUCTIONS)


def build(name, **options):
    """(stock, twin) of one config."""
    import_mmdet3d()
    return tuple(
        MODELS.build(dict(type=f'{package}.{name}', **options))
        for package in ('mmdet', 'mmturbox'))


def assert_same(losses, pred, *args, **kwargs):
    results = []
    for loss in losses:
        x = pred.clone().requires_grad_()
        out = loss(x, *args, **kwargs)
        out.sum().backward()
        results.append((out.detach(), x.grad))
    for stock, twin in zip(*results, strict=True):
        assert twin.shape == stock.shape
        torch.testing.assert_close(twin, stock, **CLOSE)


@every_reduction
@pytest.mark.parametrize('weights', [None, (30, ), (30, 1), (30, 5), (150, )])
@pytest.mark.parametrize('dense', [False, True])
def test_focal_loss_equals_stock(dense, weights, reduction, avg_factor):
    losses = build('FocalLoss', gamma=2.0, alpha=0.3, loss_weight=2.0,
                   reduction=reduction)
    target = torch.randint(0, 6, (30, ))
    if dense:
        target = torch.nn.functional.one_hot(target, 6)[:, :5]
    weight = None if weights is None else torch.rand(weights)
    assert_same(losses, torch.randn(30, 5) * 3, target, weight, avg_factor)
    assert not losses[1].state_dict()


@every_reduction
@pytest.mark.parametrize('weighted', [False, True])
def test_gaussian_focal_loss_equals_stock(weighted, reduction, avg_factor):
    losses = build('GaussianFocalLoss', pos_weight=1.5, neg_weight=0.7,
                   loss_weight=2.0, reduction=reduction)
    pred = torch.rand(2, 3, 8, 9).clamp(1e-4, 1 - 1e-4)
    target = (torch.rand(2, 3, 8, 9) * 1.1).clamp(max=1)
    weight = torch.rand_like(pred) if weighted else None
    assert_same(losses, pred, target, weight=weight, avg_factor=avg_factor)
    assert not losses[1].state_dict()


def test_what_is_not_fused_is_left_to_stock():
    pred, target = torch.rand(12, 4), torch.randint(0, 5, (12, ))
    assert_same(build('FocalLoss', activated=True), pred, target)
    heat = torch.rand(12, 4)
    losses = build('GaussianFocalLoss')
    assert_same(losses, pred, heat, torch.tensor([1, 5]),
                torch.tensor([0, 3]), avg_factor=2)
    assert_same(losses, pred, heat, weight=torch.rand(12, 1))


def test_a_weight_that_wants_a_gradient_gets_it():
    pred, target = torch.rand(12, 4), torch.randint(0, 5, (12, ))
    grads = []
    for loss in build('FocalLoss'):
        weight = torch.full((12, ), 0.5, requires_grad=True)
        loss(pred, target, weight).backward()
        grads.append(weight.grad)
    torch.testing.assert_close(*grads)


def test_a_sum_with_a_normaliser_is_an_error_as_in_stock():
    for name in ('FocalLoss', 'GaussianFocalLoss'):
        for loss in build(name, reduction='sum'):
            with pytest.raises(ValueError, match='sum'):
                loss(torch.rand(4, 4), torch.rand(4, 4), avg_factor=2)


def test_half_precision_is_finite():
    """KF-A11, through the module."""
    loss = build('FocalLoss')[1]
    pred = torch.tensor([[9.3906, -4.2344]], dtype=torch.float16,
                        requires_grad=True)
    out = loss(pred, torch.tensor([0]), avg_factor=1)
    out.backward()
    assert bool(out.isfinite()) and bool(pred.grad.isfinite().all())
