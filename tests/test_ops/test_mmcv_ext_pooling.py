"""mmcv's region pooling over our ``mmcv._ext``, against plain loops."""

import math

import pytest
import torch

pytest.importorskip('mmcv')

from sampling_by_hand import bilinear, grid, mean  # noqa: E402

from mmturbox.ops import mmcv_ext  # noqa: E402
from mmturbox.ops.mmcv_ext import pooling  # noqa: E402

ROIS = torch.tensor([
    [0, 0.7, 1.1, 5.3, 4.6],
    [1, -3.0, 2.0, 2.2, 9.0],
    [1, 2.1, 3.3, 2.6, 3.4],
    [0, 20.0, 20.0, 24.0, 24.0],
], dtype=torch.float64)
DTYPES = [torch.float16, torch.bfloat16]


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


class PrRoI(torch.autograd.Function):
    """As mmcv's, which takes no float64."""

    @staticmethod
    def forward(ctx, features, rois, size):
        output = features.new_zeros(len(rois), features.shape[1], *size)
        pooling.prroi_pool_forward(features, rois, output, *size, 0.5)
        ctx.save_for_backward(features, rois, output)
        return output

    @staticmethod
    def backward(ctx, grad):
        features, rois, output = ctx.saved_tensors
        grads = torch.empty_like(features), torch.empty_like(rois)
        size = grad.shape[2:]
        pooling.prroi_pool_backward(grad, rois, grads[0], *size, 0.5)
        pooling.prroi_pool_coor_backward(output, grad, features, rois,
                                         grads[1], *size, 0.5)
        return *grads, None


def maps(channels=2, seed=0, dtype=torch.float64, size=(6, 7)):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, channels, *size, generator=generator).to(dtype)


def bin_by_hand(plane, y, x, height, width, ratio):
    """The mean of samples in a bin that starts at y, x."""
    down, across = grid(height, 1, ratio), grid(width, 1, ratio)
    return mean(
        bilinear(plane, y + (i + 0.5) * height / down,
                 x + (j + 0.5) * width / across)
        for i in range(down) for j in range(across))


@pytest.mark.parametrize('ratio', [2, 0])
@pytest.mark.parametrize('has_offset', [True, False])
def test_deform_roi_pool(mmcv_ops, ratio, has_offset):
    features = maps()
    offset = torch.randn(4, 2, 2, 3, dtype=torch.float64,
                         generator=torch.Generator().manual_seed(3))
    want = torch.zeros(4, 2, 2, 3, dtype=torch.float64)
    for n, channel, row, column in torch.cartesian_prod(
            *map(torch.arange, want.shape)).tolist():
        left, top, right, bottom = (ROIS[n, 1:] * 0.5 - 0.5).tolist()
        height, width = (bottom - top) / 2, (right - left) / 3
        if has_offset:
            move_x, move_y = offset[n, :, row, column].tolist()
            left += 0.1 * move_x * (right - left)
            top += 0.1 * move_y * (bottom - top)
        want[n, channel, row, column] = bin_by_hand(
            features[int(ROIS[n, 0]), channel], top + row * height,
            left + column * width, height, width, ratio)
    if not has_offset:
        offset = None
    args = ((2, 3), 0.5, ratio, 0.1)
    got = mmcv_ops.deform_roi_pool(features, ROIS, offset, *args)
    torch.testing.assert_close(got, want)
    if has_offset:
        assert torch.autograd.gradcheck(
            lambda f, o: mmcv_ops.deform_roi_pool(f, ROIS, o, *args),
            (features.requires_grad_(), offset.requires_grad_()))


@pytest.mark.parametrize('ratio, aligned', [(2, True), (0, False)])
def test_bezier_align(mmcv_ops, ratio, aligned):
    features = maps()
    generator = torch.Generator().manual_seed(4)
    curves = torch.rand(3, 17, generator=generator, dtype=torch.float64) * 12
    curves[:, 0] = torch.tensor([1, 0, 1])

    def curve(points, t):
        return [sum(math.comb(3, k) * t**k * (1 - t)**(3 - k) * points[k][axis]
                    for k in range(4)) for axis in (0, 1)]

    want = torch.zeros(3, 2, 3, 4, dtype=torch.float64)
    for n, channel, row, column in torch.cartesian_prod(
            *map(torch.arange, want.shape)).tolist():
        points = (curves[n, 1:].view(8, 2) * 0.5).tolist()
        upper, lower = points[:4], points[:3:-1]
        width, height = (
            max(abs(upper[0][axis] - upper[3][axis]),
                abs(lower[0][axis] - lower[3][axis]),
                0 if aligned else 1) for axis in (0, 1))
        above, below = curve(upper, column / 4), curve(lower, column / 4)
        x, y = (below[axis] * row / 3 + above[axis] * (1 - row / 3)
                - (0.5 if aligned else 0) for axis in (0, 1))
        want[n, channel, row, column] = bin_by_hand(
            features[int(curves[n, 0]), channel], y - height / 6,
            x - width / 8, height / 3, width / 4, ratio)
    args = (curves, (3, 4), 0.5, ratio, aligned)
    got = mmcv_ops.bezier_align(features, *args)
    torch.testing.assert_close(got, want)
    assert torch.autograd.gradcheck(
        lambda f: mmcv_ops.bezier_align(f, *args), features.requires_grad_(),
        fast_mode=True)


def test_border_align(mmcv_ops):
    features = maps(8, size=(3, 4))
    generator = torch.Generator().manual_seed(5)
    boxes = torch.rand(2, 12, 4, generator=generator, dtype=torch.float64) * 5
    want = torch.zeros(2, 2, 12, 4, dtype=torch.float64)
    for n, channel, box in torch.cartesian_prod(
            *map(torch.arange, (2, 2, 12))).tolist():
        left, top, right, bottom = boxes[n, box].tolist()
        for border in range(4):
            places = [((top if border < 2 else bottom)
                       + part * (0, 1, 0, -1)[border] * (bottom - top),
                       (left if border < 2 else right)
                       + part * (1, 0, -1, 0)[border] * (right - left))
                      for part in (0, 0.25, 0.5, 0.75, 1)]
            want[n, channel, box, border] = max(
                bilinear(features[n, border * 2 + channel], *place)
                for place in places)
    got = mmcv_ops.border_align(features, boxes, 4)
    torch.testing.assert_close(got, want)
    assert torch.autograd.gradcheck(
        lambda f: mmcv_ops.border_align(f, boxes, 4),
        features.requires_grad_(),
        fast_mode=True)


def test_prroi_pool(mmcv_ops):
    """The integral is that of many samples of the zero-padded surface."""
    features, steps = maps(), 400
    padded = torch.nn.functional.pad(features, (4, 4, 4, 4))
    want = torch.zeros(4, 2, 2, 3, dtype=torch.float64)
    at = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    for n, row, column in torch.cartesian_prod(
            *map(torch.arange, (4, 2, 3))).tolist():
        if n == 3:
            continue
        left, top, right, bottom = (ROIS[n, 1:] * 0.5).tolist()
        y = top + (row + at) * (bottom - top) / 2 + 4
        x = left + (column + at) * (right - left) / 3 + 4
        y, x = torch.meshgrid(y / 13 * 2 - 1, x / 14 * 2 - 1, indexing='ij')
        want[n, :, row, column] = torch.nn.functional.grid_sample(
            padded[int(ROIS[n, 0])][None], torch.stack([x, y], -1)[None],
            align_corners=True).mean((0, 2, 3))
    got = PrRoI.apply(features, ROIS, (2, 3))
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
    assert torch.autograd.gradcheck(
        lambda f, r: PrRoI.apply(f, torch.cat([ROIS[:, :1], r], 1), (2, 3)),
        (features.requires_grad_(), ROIS[:, 1:].clone().requires_grad_()))
    flat = ROIS[:1].clone()
    flat[0, 3] = flat[0, 1]
    flat.requires_grad_()
    out = PrRoI.apply(features, flat, (2, 3))
    out.sum().backward()
    assert not out.any() and not flat.grad.any()
    torch.testing.assert_close(
        mmcv_ops.prroi_pool(features.float(), ROIS.float(), (2, 3), 0.5),
        got.float())


@pytest.mark.parametrize('dtype', [torch.float64, torch.float16])
def test_roi_pool(mmcv_ops, dtype):
    features = maps(dtype=dtype)
    want = torch.zeros(4, 2, 2, 3, dtype=dtype)
    for n, channel, row, column in torch.cartesian_prod(
            *map(torch.arange, want.shape)).tolist():
        left, top = (ROIS[n, 1:3] * 0.5).tolist()
        height, width = ((ROIS[n, 3:] + 1) * 0.5
                         - ROIS[n, 1:3] * 0.5).flip(0).tolist()
        first = [max(math.floor(s + i * d), 0) for s, i, d in
                 ((top, row, height / 2), (left, column, width / 3))]
        last = [max(math.ceil(s + (i + 1) * d), 0) for s, i, d in
                ((top, row, height / 2), (left, column, width / 3))]
        pixels = features[int(ROIS[n, 0]), channel, first[0]:last[0],
                          first[1]:last[1]]
        if pixels.numel():
            want[n, channel, row, column] = pixels.max()
    rois = ROIS.to(dtype)
    got = mmcv_ops.roi_pool(features, rois, (2, 3), 0.5)
    assert torch.equal(got, want) if dtype == torch.float64 else (
        got.shape == want.shape)
    if dtype == torch.float64:
        assert torch.autograd.gradcheck(
            lambda f: mmcv_ops.roi_pool(f, rois, (2, 3), 0.5),
            features.requires_grad_(),
        fast_mode=True)


def test_roi_pool_takes_the_first_of_equal_maxima(mmcv_ops):
    features = torch.ones(1, 1, 4, 4, requires_grad=True)
    rois = torch.tensor([[0., 0, 0, 3, 3], [0., 30, 30, 33, 33]])
    out = mmcv_ops.roi_pool(features, rois, (2, 2), 1.0)
    assert out.flatten().tolist() == [1.] * 4 + [0.] * 4
    out.sum().backward()
    assert features.grad.nonzero()[:, 2:].tolist() == [
        [0, 0], [0, 2], [2, 0], [2, 2]]


def calls(ops):
    curves = torch.rand(3, 17, generator=torch.Generator().manual_seed(6))
    return [
        (lambda f, r: ops.deform_roi_pool(f, r, None, (2, 3), 1.0, 0), ROIS),
        (lambda f, r: ops.bezier_align(f, r, (2, 3), 1.0, 0), curves * 6),
        (lambda f, r: PrRoI.apply(f, r, (2, 3)), ROIS),
        (lambda f, r: ops.roi_pool(f, r, (2, 3), 1.0), ROIS)]


@pytest.mark.parametrize('dtype', DTYPES)
def test_half_precision_is_summed_in_float32(mmcv_ops, dtype):
    features = maps(dtype=dtype)
    for call, regions in calls(mmcv_ops):
        regions = regions.to(dtype)
        regions[:, 0] = regions[:, 0].clamp(max=1).floor()
        got = call(features, regions)
        want = call(features.float(), regions.float())
        assert got.dtype == dtype and torch.equal(got, want.to(dtype))


def test_no_regions(mmcv_ops):
    features = maps().requires_grad_()
    for call, regions in calls(mmcv_ops):
        out = call(features, regions[:0].double())
        assert out.shape == (0, 2, 2, 3)
        out.sum().backward()
    assert not features.grad.any()
