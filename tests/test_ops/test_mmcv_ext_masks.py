"""mmcv's attention masks and masked convolution over our ``mmcv._ext``."""

import pytest
import torch

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


@pytest.mark.parametrize('psa_type', ['collect', 'distribute'])
@pytest.mark.parametrize('mask', [(3, 5), (5, 4), (1, 1), (9, 9)])
def test_psa_mask(mmcv_ops, psa_type, mask):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, mask[0] * mask[1], 3, 4, generator=generator,
                         dtype=torch.float64)
    want = torch.zeros(2, 12, 3, 4, dtype=torch.float64)
    for row, column, entry in torch.cartesian_prod(
            *map(torch.arange, (3, 4, mask[0] * mask[1]))).tolist():
        y = row + entry // mask[1] - (mask[0] - 1) // 2
        x = column + entry % mask[1] - (mask[1] - 1) // 2
        if not (0 <= y < 3 and 0 <= x < 4):
            continue
        value = scores[:, entry, row, column]
        if psa_type == 'collect':
            want[:, y * 4 + x, row, column] = value
        else:
            want[:, row * 4 + column, y, x] = value
    layer = mmcv_ops.PSAMask(psa_type, mask)
    assert torch.equal(layer(scores), want)
    assert torch.autograd.gradcheck(layer, scores.requires_grad_())


@pytest.mark.parametrize('kernel, padding', [(3, 1), ((3, 5), (1, 2)),
                                             (1, 0)])
def test_masked_convolution_equals_convolution_at_the_mask(mmcv_ops, kernel,
                                                           padding):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(1, 3, 6, 7, generator=generator)
    mask = (torch.rand(1, 6, 7, generator=generator) > 0.6).float()
    layer = mmcv_ops.MaskedConv2d(3, 4, kernel, padding=padding)
    got = layer(features, mask)
    want = torch.nn.Conv2d.forward(layer, features) * mask
    torch.testing.assert_close(got, want)
    assert not layer(features, torch.zeros(1, 6, 7)).any()
