"""mmcv's batch norm and leaky ReLU calls over our ``mmcv._ext``."""

import pytest
import torch
from torch import distributed as dist

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402
from mmturbox.ops.mmcv_ext.layers import fused_bias_leakyrelu  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


@pytest.fixture
def alone(tmp_path):
    """A process group of one."""
    dist.init_process_group('gloo', init_method=f'file://{tmp_path}/store',
                            rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize('mode', ['default', 'N'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_sync_bn_of_one_process_is_batch_norm(mmcv_ops, alone, mode, dtype):
    stock = torch.nn.BatchNorm2d(3)
    layer = mmcv_ops.SyncBatchNorm(3, stats_mode=mode)
    torch.nn.init.uniform_(stock.weight)
    torch.nn.init.uniform_(stock.bias)
    layer.load_state_dict(stock.state_dict())
    generator = torch.Generator().manual_seed(0)
    tolerance = dict(atol=2e-3, rtol=2e-3) if dtype == torch.float16 else {}
    for _ in range(2):
        one = torch.randn(4, 3, 2, 5, generator=generator).to(dtype)
        two = one.clone().requires_grad_()
        one = one.float().requires_grad_()
        want, got = stock(one), layer(two)
        grad = torch.randn(4, 3, 2, 5, generator=generator)
        want.backward(grad)
        got.backward(grad.to(dtype))
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), want, **tolerance)
        torch.testing.assert_close(two.grad.float(), one.grad, **tolerance)
    torch.testing.assert_close(layer.state_dict(), stock.state_dict(),
                               **tolerance)
    torch.testing.assert_close(layer.weight.grad, stock.weight.grad,
                               **tolerance)
    torch.testing.assert_close(layer.bias.grad, stock.bias.grad, **tolerance)
    before = layer.running_var.clone()
    layer(torch.zeros(0, 3, 2, 5))
    assert torch.equal(layer.running_var, before)


@pytest.mark.parametrize('act', [1, 3])
@pytest.mark.parametrize('shape', [(4, 3), (4, 3, 2, 5)])
def test_fused_bias_leakyrelu(act, shape):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator)
    bias, none = torch.randn(3, generator=generator), torch.empty(0)
    total = (values + bias.view(-1, *[1] * (len(shape) - 2))
             ).requires_grad_()
    want = 1.5 * (torch.nn.functional.leaky_relu(total, 0.3)
                  if act == 3 else total)
    got = fused_bias_leakyrelu(values, bias, none, act, 0, 0.3, 1.5)
    torch.testing.assert_close(got, want)
    grad = torch.randn(shape, generator=generator)
    want.backward(grad)
    got = fused_bias_leakyrelu(grad, none, got, act, 1, 0.3, 1.5)
    torch.testing.assert_close(got, total.grad)
    assert not fused_bias_leakyrelu(grad, none, got, act, 2, 0.3, 1.5).any()


def test_fused_bias_leakyrelu_differentiates_twice(mmcv_ops):
    function = mmcv_ops.fused_bias_leakyrelu.__globals__[
        'FusedBiasLeakyReLUFunction']
    values = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True,
                         generator=torch.Generator().manual_seed(0))
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, b: function.apply(x, b, 0.2, 1.5), (values, bias))
