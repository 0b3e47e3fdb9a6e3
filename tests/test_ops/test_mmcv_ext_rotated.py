"""mmcv's rotated operators over our ``mmcv._ext``, against plain loops."""

import math

import pytest
import torch

pytest.importorskip('mmcv')

from sampling_by_hand import bilinear, grid, mean  # noqa: E402

from mmturbox.ops import mmcv_ext  # noqa: E402

ROIS = torch.tensor([
    [0, 3.0, 2.5, 4.0, 3.0, 0.4],
    [1, 1.0, 4.0, 5.5, 2.0, -1.3],
    [1, 6.5, -0.5, 3.0, 6.0, 2.9],
    [0, 30.0, 30.0, 4.0, 4.0, 0.1],
    [0, 3.0, 3.0, 0.2, 0.3, -7.0],
], dtype=torch.float64)


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def maps(channels=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, channels, 6, 7, generator=generator).to(dtype)


def pooled_by_hand(plane, roi, scale, size, ratio, aligned, clockwise):
    x, y, width, height = (float(v) * scale for v in roi[1:5])
    shift = 0.5 if aligned else 0.0
    if not aligned:
        width, height = max(width, 1), max(height, 1)
    angle = float(-roi[5] if clockwise else roi[5])
    cos, sin = math.cos(angle), math.sin(angle)
    out = torch.zeros(size, dtype=torch.float64)
    down = grid(height, size[0], ratio)
    across = grid(width, size[1], ratio)
    for row in range(size[0]):
        for column in range(size[1]):
            out[row, column] = mean(
                bilinear(plane, v * cos - u * sin + y - shift,
                         v * sin + u * cos + x - shift)
                for v in ((row + (i + 0.5) / down) * height / size[0]
                          - height / 2 for i in range(down))
                for u in ((column + (j + 0.5) / across) * width / size[1]
                          - width / 2 for j in range(across)))
    return out


@pytest.mark.parametrize('scale, size, ratio, aligned, clockwise', [
    (1.0, (2, 3), 2, True, False), (0.5, (3, 2), 0, True, True),
    (1.0, (2, 2), 0, False, False), (2.0, (1, 4), 3, False, True)])
def test_roi_align_rotated(mmcv_ops, scale, size, ratio, aligned, clockwise):
    features = maps()
    want = torch.stack([torch.stack([
        pooled_by_hand(plane, roi, scale, size, ratio, aligned, clockwise)
        for plane in features[int(roi[0])]]) for roi in ROIS])
    args = (ROIS, size, scale, ratio, aligned, clockwise)
    got = mmcv_ops.roi_align_rotated(features, *args)
    torch.testing.assert_close(got, want)
    assert torch.autograd.gradcheck(
        lambda f: mmcv_ops.roi_align_rotated(f, *args),
        features.requires_grad_(), fast_mode=True)


@pytest.mark.parametrize('orientations, ratio, clockwise', [
    (4, 2, False), (2, 0, True)])
def test_riroi_align_rotated(mmcv_ops, orientations, ratio, clockwise):
    features = maps(4)
    want = torch.zeros(len(ROIS), 4, 2, 3, dtype=torch.float64)
    for n, roi in enumerate(ROIS):
        planes = [pooled_by_hand(plane, roi, 1, (2, 3), ratio, False,
                                 clockwise)
                  for plane in features[int(roi[0])]]
        turns = float(roi[5]) / (2 * math.pi) * orientations
        whole = math.floor(turns)
        for channel in range(4):
            group = channel // orientations * orientations
            one = group + (channel - whole) % orientations
            two = group + (channel - whole + 1) % orientations
            part = turns - whole
            want[n, channel] = (1 - part) * planes[one] + part * planes[two]
    args = (ROIS, (2, 3), 1.0, ratio, orientations, clockwise)
    got = mmcv_ops.riroi_align_rotated(features, *args)
    torch.testing.assert_close(got, want)
    assert torch.autograd.gradcheck(
        lambda f: mmcv_ops.riroi_align_rotated(f, *args),
        features.requires_grad_(), fast_mode=True)


@pytest.mark.parametrize('points', [1, 5])
def test_rotated_feature_align(mmcv_ops, points):
    features = maps()
    generator = torch.Generator().manual_seed(1)
    boxes = torch.rand(2, 6, 7, 5, generator=generator,
                       dtype=torch.float64) * 20 - 4
    want = features.clone()
    for n, row, column in torch.cartesian_prod(*map(torch.arange, (2, 6, 7))):
        y, x, width, height, angle = boxes[n, row, column].tolist()
        y, x, width, height = y / 2, x / 2, width / 4, height / 4
        places = [(y, x)]
        if points == 5:
            places += [(y + a * width * math.sin(angle)
                        + b * height * math.cos(angle),
                        x + a * width * math.cos(angle)
                        - b * height * math.sin(angle))
                       for a in (-1, 1) for b in (-1, 1)]
        for channel in range(2):
            want[n, channel, row, column] += sum(
                bilinear(features[n, channel], *place) for place in places)
    got = mmcv_ops.rotated_feature_align(features, boxes, 0.5, points)
    torch.testing.assert_close(got, want)
    assert torch.autograd.gradcheck(
        lambda f: mmcv_ops.rotated_feature_align(f, boxes, 0.5, points),
        features.requires_grad_(), fast_mode=True)


def test_active_rotated_filter(mmcv_ops):
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(3, 2, 2, 3, 3, generator=generator,
                         dtype=torch.float64)
    # Each column is a permutation of the 18 entries, counted from one.
    indices = torch.stack([
        torch.randperm(18, generator=generator) + 1 for _ in range(4)], 1)
    indices = indices.int().view(2, 3, 3, 4)
    want = torch.zeros(3, 4, 2, 18, dtype=torch.float64)
    for o, i, entry, turn in torch.cartesian_prod(
            *map(torch.arange, (3, 2, 18, 4))):
        place = indices.view(18, 4)[entry, turn] - 1
        want[o, turn, i, place] = weight.view(3, 2, 18)[o, i, entry]
    got = mmcv_ops.active_rotated_filter(weight, indices)
    assert torch.equal(got, want.view(12, 4, 3, 3))
    assert torch.autograd.gradcheck(
        lambda w: mmcv_ops.active_rotated_filter(w, indices),
        weight.requires_grad_())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(mmcv_ops, dtype):
    features, rois = maps(dtype=dtype), ROIS.to(dtype)
    args = ((2, 3), 1.0, 2)
    for call in (mmcv_ops.roi_align_rotated,
                 lambda f, r, *a: mmcv_ops.riroi_align_rotated(f, r, *a, 2)):
        got = call(features, rois, *args)
        want = call(features.float(), rois.float(), *args)
        assert got.dtype == dtype and torch.equal(got, want.to(dtype))


def test_no_rois_and_no_numbers(mmcv_ops):
    features = maps().requires_grad_()
    for call in (mmcv_ops.roi_align_rotated,
                 lambda f, r, *a: mmcv_ops.riroi_align_rotated(f, r, *a, 2)):
        for ratio in (0, 2):
            out = call(features, ROIS[:0], (2, 3), 1.0, ratio)
            assert out.shape == (0, 2, 2, 3)
            out.sum().backward()
        lost = ROIS[:1].clone()
        lost[0, 1:5] = torch.nan
        for ratio in (0, 2):
            assert not call(features, lost, (2, 3), 1.0, ratio).any()
    assert not features.grad.any()
