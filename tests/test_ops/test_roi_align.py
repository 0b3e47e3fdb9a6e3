"""RoI align, average and maximum."""

import math

import pytest
import torch

from mmturbox.ops import roi_align
from mmturbox.ops.roi_align import (
    roi_align_backward_reference,
    roi_align_reference,
)

OPS = torch.ops.mmturbox
CASES = [(mode, ratio, aligned) for mode in ('avg', 'max')
         for ratio in (0, 2) for aligned in (True, False)]
every_case = pytest.mark.parametrize('mode, ratio, aligned', CASES)


def make_input(dtype=torch.float32, channels=3, regions=12):
    """Two maps of 9 x 11, regions that also reach out of them."""
    generator = torch.Generator().manual_seed(channels)
    maps = torch.randn(2, channels, 9, 11, generator=generator)
    low = torch.rand(regions, 2, generator=generator) * 24 - 4
    size = torch.rand(regions, 2, generator=generator) * 14
    index = torch.randint(2, (regions, 1), generator=generator)
    return maps.to(dtype), torch.cat((index, low, low + size), 1).to(dtype)


def plain_read(image, y, x):
    height, width = len(image), len(image[0])
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = (min(max(v, 0), n - 1)
            for v, n in ((y, height), (x, width)))
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    top = image[y0][x0] * (1 - x + x0) + image[y0][x1] * (x - x0)
    bottom = image[y1][x0] * (1 - x + x0) + image[y1][x1] * (x - x0)
    return top * (1 - y + y0) + bottom * (y - y0)


def plain_bins(low, high, bins, scale, ratio, aligned):
    start, end = (v * scale - 0.5 * aligned for v in (low, high))
    extent = end - start if aligned else max(end - start, 1)
    samples = ratio or math.ceil(extent / bins)
    return [[start + extent / bins * (b + (s + 0.5) / samples)
             for s in range(samples)] for b in range(bins)]


def plain_roi_align(maps, rois, size, scale, ratio, mode, aligned):
    """Independent of the package: Python floats, sample by sample."""
    out = torch.zeros(len(rois), maps.shape[1], *size, dtype=torch.float64)
    for n, roi in enumerate(rois.double().tolist()):
        ys = plain_bins(roi[2], roi[4], size[0], scale, ratio, aligned)
        xs = plain_bins(roi[1], roi[3], size[1], scale, ratio, aligned)
        for c, image in enumerate(maps[int(roi[0])].double().tolist()):
            for i, in_y in enumerate(ys):
                for j, in_x in enumerate(xs):
                    reads = [plain_read(image, y, x)
                             for y in in_y for x in in_x] or [0.0]
                    out[n, c, i, j] = max(reads) if mode == 'max' else sum(
                        reads) / len(reads)
    return out


@every_case
@pytest.mark.parametrize('size, scale', [((3, 4), 0.5), ((1, 1), 1.0)])
def test_roi_align_matches_plain_python(mode, ratio, aligned, size, scale):
    maps, rois = make_input(torch.float64)
    options = (size, scale, ratio, mode, aligned)
    expected = plain_roi_align(maps, rois, *options)
    torch.testing.assert_close(roi_align(maps, rois, *options), expected)
    torch.testing.assert_close(
        roi_align(maps.float(), rois.float(), *options), expected.float(),
        rtol=1e-4, atol=1e-5)


@every_case
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('channels, bins', [(5, (3, 2)), (1, (1, 7)),
                                            (33, (2, 2))])
def test_kernels_equal_the_reference(device, mode, ratio, aligned, dtype,
                                     channels, bins):
    maps, rois = (t.to(device) for t in make_input(dtype, channels))
    options = (0.5, ratio, int(mode == 'avg'), aligned)
    found = OPS.roi_align(maps, rois, *bins, *options)
    expected = roi_align_reference(maps, rois, *bins, *options)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
    torch.testing.assert_close(found[0], expected[0])
    arguments = (torch.randn_like(found[0]), rois, *found[1:],
                 list(maps.shape), *options)
    torch.testing.assert_close(
        OPS.roi_align_backward(*arguments),
        roi_align_backward_reference(*arguments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('ratio', [0, 1, 3])
def test_large_regions_with_few_samples_equal_the_reference(device, ratio):
    """Few of the pixels are read."""
    maps = torch.randn(1, 2, 60, 70, device=device)
    rois = torch.tensor([[0, 0, 0, 69, 59.0], [0, 5, 5, 60, 9]],
                        device=device)
    options = (2, 3, 1.0, ratio, 1, True)
    torch.testing.assert_close(
        OPS.roi_align(maps, rois, *options)[0],
        roi_align_reference(maps, rois, *options)[0], rtol=1e-5, atol=1e-5)


@every_case
def test_gradients_are_right(mode, ratio, aligned):
    maps, rois = make_input(torch.float64, 2, 5)
    assert torch.autograd.gradcheck(
        lambda x: roi_align(x, rois, 2, 0.5, ratio, mode, aligned),
        maps.requires_grad_())


@every_case
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_float32_result_once(
        mode, ratio, aligned, dtype):
    maps, rois = make_input(dtype)
    options = (2, 0.5, ratio, mode, aligned)
    x = maps.clone().requires_grad_()
    y = maps.float().requires_grad_()
    out, exact = roi_align(x, rois, *options), roi_align(y, rois, *options)
    assert torch.equal(out, exact.to(dtype))
    # A gradient that both types hold exactly.
    grad = torch.ones_like(out)
    out.backward(grad)
    exact.backward(grad.float())
    assert torch.equal(x.grad, y.grad.to(dtype))


@pytest.mark.parametrize('mode', ['avg', 'max'])
def test_regions_without_area_or_finite_corners_give_zero(device, mode):
    maps = make_input()[0].to(device)
    nan = math.nan
    rois = torch.tensor([[0, 3, 3, 3, 6.], [0, 5, 5, 2, 2], [1, nan, 0, 4, 4],
                         [1, 0, 0, math.inf, 4], [1, 90, 90, 99, 99]],
                        device=device)
    out = roi_align(maps.requires_grad_(), rois, 2, pool_mode=mode)
    assert not out.any()
    out.sum().backward()
    assert not maps.grad.any()


@pytest.mark.parametrize('mode', ['avg', 'max'])
def test_edges_of_shape_and_memory(mode):
    maps, rois = make_input(channels=4)
    x = maps.clone().requires_grad_()
    empty = roi_align(x, rois[:0], (2, 3), pool_mode=mode)
    assert empty.shape == (0, 4, 2, 3)
    empty.sum().backward()
    assert x.grad.shape == maps.shape and not x.grad.any()
    one = roi_align(maps[:, :1, :1, :1], rois[:1] * 0 + 0.2, 1, 1.0, 2, mode)
    assert one.shape == (1, 1, 1, 1)
    views = (maps[:, ::2], rois.t().contiguous().t())
    assert not views[0].is_contiguous() and not views[1].is_contiguous()
    assert torch.equal(
        roi_align(*views, 3, pool_mode=mode),
        roi_align(*(v.contiguous() for v in views), 3, pool_mode=mode))


@pytest.mark.parametrize('index', [-1, 2, math.nan])
def test_a_batch_index_outside_of_the_batch_is_an_error_or_zero(device,
                                                                index):
    maps, rois = (t.to(device) for t in make_input())
    rois[3, 0] = index
    try:
        out = roi_align(maps.requires_grad_(), rois, 2)
    except (RuntimeError, ValueError):
        return
    assert not out[3].any() and bool(out[:3].any())
    out.sum().backward()
    rest = [i for i in range(len(rois)) if i != 3]
    again = roi_align(maps, rois[rest], 2)
    assert torch.equal(again, out[rest])


@every_case
def test_results_do_not_depend_on_run_or_threads(mode, ratio, aligned):
    maps, rois = make_input(channels=48, regions=40)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            x = maps.clone().requires_grad_()
            out = roi_align(x, rois, 3, 0.5, ratio, mode, aligned)
            out.square().sum().backward()
            results.append((out, x.grad))
    finally:
        torch.set_num_threads(before)
    for out, grad in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(grad, results[0][1])


@pytest.mark.parametrize('mode', [0, 1])
def test_operators_pass_opcheck(mode):
    maps, rois = make_input(channels=2, regions=3)
    options = (0.5, 2, mode, True)
    torch.library.opcheck(
        OPS.roi_align.default,
        (maps.requires_grad_(), rois, 2, 2, *options))
    with torch.no_grad():
        found = OPS.roi_align(maps, rois, 2, 2, *options)
    torch.library.opcheck(
        OPS.roi_align_backward.default,
        (found[0], rois, *found[1:], list(maps.shape), *options))


@pytest.mark.parametrize('change, message', [
    (dict(pool_mode='sum'), 'pool_mode'),
    (dict(rois=torch.zeros(2, 4)), 'rois'),
    (dict(rois=torch.zeros(2, 5, device='meta')), 'device'),
    (dict(input=torch.zeros(2, 4, 4)), 'input'),
])
def test_bad_arguments_are_named(change, message):
    maps, rois = make_input()
    arguments = dict(input=maps, rois=rois, output_size=2)
    with pytest.raises(ValueError, match=message):
        roi_align(**(arguments | change))


@every_case
def test_mmcv_layer_runs_over_it(mode, ratio, aligned):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    maps, rois = make_input()
    options = ((3, 2), 0.5, ratio, mode, aligned)
    x, y = (maps.clone().requires_grad_() for _ in range(2))
    theirs = mmcv_ops.RoIAlign(*options)(x, rois)
    ours = roi_align(y, rois, *options)
    assert torch.equal(theirs, ours)
    theirs.square().sum().backward()
    ours.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
