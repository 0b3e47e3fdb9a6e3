"""mmcv's deformable attention over our ``mmcv._ext``."""

import pytest
import torch
from test_ms_deform_attn import make_input

from mmturbox.ops import mmcv_ext

pytest.importorskip('mmcv')


@pytest.fixture(scope='module')
def stock():
    mmcv_ext.install()
    pytest.importorskip('mmcv.ops')
    from mmcv.ops import multi_scale_deform_attn
    return multi_scale_deform_attn


@pytest.mark.parametrize('batch, step', [(1, 64), (5, 2), (65, 64), (3, 1)])
def test_mmcvs_function_runs_over_it_with_any_step(stock, batch, step):
    """KF-A10."""
    value, shapes, starts, locations, weights = make_input(
        batch=batch, dtype=torch.float64)
    first = [t.clone().requires_grad_() for t in (value, locations, weights)]
    second = [t.clone().requires_grad_() for t in (value, locations, weights)]
    found = stock.MultiScaleDeformableAttnFunction.apply(
        first[0], shapes, starts, *first[1:], step)
    expected = stock.multi_scale_deformable_attn_pytorch(
        second[0], shapes, *second[1:])
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    found.backward(grad)
    expected.backward(grad)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
