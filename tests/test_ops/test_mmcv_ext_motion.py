"""mmcv's correlation and temporal shift over our ``mmcv._ext``."""

import pytest
import torch

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def maps(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 2, 3, 6, 7, generator=generator).to(dtype)


@pytest.mark.parametrize(
    'kernel, displacement, stride, padding, dilation, dilation_patch',
    [(1, 1, 1, 0, 1, 1), (3, 2, 1, 1, 1, 1), (3, 1, 2, 2, 2, 3),
     (1, 10, 1, 0, 1, 2)])
def test_correlation(mmcv_ops, kernel, displacement, stride, padding,
                     dilation, dilation_patch):
    one, two = maps()
    args = (kernel, displacement, stride, padding, dilation, dilation_patch)
    got = mmcv_ops.correlation.CorrelationFunction.apply(one, two, *args)
    want = torch.zeros_like(got)
    patch = 2 * displacement + 1
    assert got.shape[:3] == (2, patch, patch)

    def at(values, n, y, x):
        inside = 0 <= y < 6 and 0 <= x < 7
        return values[n, :, y, x] if inside else torch.zeros(3).double()

    for n, py, px, row, column in torch.cartesian_prod(
            *map(torch.arange, want.shape)).tolist():
        for tap in range(kernel**2):
            y = row * stride - padding + tap // kernel * dilation
            x = column * stride - padding + tap % kernel * dilation
            want[n, py, px, row, column] += at(one, n, y, x) @ at(
                two, n, y + (py - displacement) * dilation_patch,
                x + (px - displacement) * dilation_patch)
    torch.testing.assert_close(got, want)
    assert torch.autograd.gradcheck(
        lambda a, b: mmcv_ops.correlation.CorrelationFunction.apply(
            a, b, *args),
        (one.requires_grad_(), two.requires_grad_()), fast_mode=True)


def test_correlation_in_half_precision(mmcv_ops):
    one, two = maps(torch.float16)
    layer = mmcv_ops.Correlation(max_displacement=2)
    got = layer(one, two)
    assert got.dtype == torch.float16
    assert torch.equal(got, layer(one.float(), two.float()).half())


@pytest.mark.parametrize('dtype', [torch.float64, torch.float16])
def test_tin_shift(mmcv_ops, dtype):
    """The gradient moves as the values do: so does mmcv's."""
    frames = torch.arange(2 * 5 * 6 * 3.).view(2, 5, 6, 3).to(dtype)
    shift = torch.tensor([[1, 0, -2], [7, -1, 4]], dtype=torch.int32)
    want = torch.zeros_like(frames)
    for n, t, channel in torch.cartesian_prod(
            *map(torch.arange, (2, 5, 6))).tolist():
        to = t + int(shift[n, channel // 2])
        if 0 <= to < 5:
            want[n, to, channel] = frames[n, t, channel]
    frames.requires_grad_()
    got = mmcv_ops.tin_shift(frames, shift)
    assert torch.equal(got, want)
    got.backward(frames.detach())
    assert torch.equal(frames.grad, want)
