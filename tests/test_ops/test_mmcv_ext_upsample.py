"""mmcv's CARAFE over our ``mmcv._ext``, against plain loops."""

import pytest
import torch

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def inputs(kernel, groups, scale, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 4, 3, 5, generator=generator)
    masks = torch.rand(2, kernel**2 * groups, 3 * scale, 5 * scale,
                       generator=generator)
    return features.to(dtype), masks.to(dtype)


@pytest.mark.parametrize('name', ['carafe', 'carafe_naive'])
@pytest.mark.parametrize('kernel, groups, scale', [(3, 2, 2), (5, 1, 3),
                                                   (1, 4, 1)])
def test_each_pixel_sums_around_its_source(mmcv_ops, name, kernel, groups,
                                           scale):
    features, masks = inputs(kernel, groups, scale)
    want = torch.zeros(2, 4, 3 * scale, 5 * scale, dtype=torch.float64)
    for n, channel, row, column in torch.cartesian_prod(
            *map(torch.arange, want.shape)).tolist():
        first = channel // (4 // groups) * kernel**2
        for tap in range(kernel**2):
            y = row // scale + tap // kernel - kernel // 2
            x = column // scale + tap % kernel - kernel // 2
            if 0 <= y < 3 and 0 <= x < 5:
                want[n, channel, row, column] += (
                    features[n, channel, y, x]
                    * masks[n, first + tap, row, column])
    call = getattr(mmcv_ops, name)
    args = (kernel, groups, scale)
    torch.testing.assert_close(call(features, masks, *args), want)
    assert torch.autograd.gradcheck(
        lambda f, m: call(f, m, *args),
        (features.requires_grad_(), masks.requires_grad_()), fast_mode=True)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(mmcv_ops, dtype):
    features, masks = inputs(3, 2, 2, dtype)
    got = mmcv_ops.carafe(features, masks, 3, 2, 2)
    want = mmcv_ops.carafe(features.float(), masks.float(), 3, 2, 2)
    assert got.dtype == dtype and torch.equal(got, want.to(dtype))


def test_carafe_pack_runs_and_learns(mmcv_ops):
    from mmcv.ops.carafe import CARAFEPack
    layer = CARAFEPack(8, 2, compressed_channels=4)
    out = layer(torch.rand(1, 8, 4, 6))
    assert out.shape == (1, 8, 8, 12)
    out.sum().backward()
    assert layer.content_encoder.weight.grad.isfinite().all()
