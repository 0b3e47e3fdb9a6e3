"""Suppression of points by their distance."""

import pytest
import torch

from mmturbox.ops import circle_nms


def make_points(number, seed=0):
    """Points on a coarse grid: many share a place, many distances agree."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(0, 40, (number, 2), generator=generator) / 4
    return points, torch.rand(number, generator=generator)


def plain(points, scores, squared):
    kept = []
    for i in sorted(range(len(points)), key=lambda i: -float(scores[i])):
        if all(float((points[i] - points[k]).square().sum()) > squared
               for k in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('squared', [0., 0.0625, 1., 6.5])
def test_agrees_with_plain_python(device, dtype, squared):
    points, scores = make_points(200)
    keep = circle_nms(
        points.to(device, dtype), scores.to(device, dtype), squared)
    assert keep.dtype == torch.int64 and len(keep) < 200
    assert keep.tolist() == plain(points, scores, squared)


def test_a_centre_at_the_distance_goes(device):
    points = torch.tensor([[0., 0], [0.3, 0], [0.6, 0]], device=device)
    scores = torch.tensor([0.9, 0.8, 0.7], device=device)
    squared = float((points[0] - points[1]).square().sum())
    assert circle_nms(points, scores, squared).tolist() == [0, 2]
    assert circle_nms(points, scores, squared * 0.9999).tolist() == [0, 1, 2]


@pytest.mark.parametrize('number', [0, 1, 10, 65, 1000])
def test_no_points_and_copies_of_one(device, number):
    """KF-A8, KF-A9."""
    points = torch.ones(number, 2, device=device)
    keep = circle_nms(points, torch.ones(number, device=device), 0.5)
    assert keep.dtype == torch.int64
    assert keep.tolist() == [0][:number]


def test_limit_of_kept_centres(device):
    points, scores = (t.to(device) for t in make_points(100))
    keep = circle_nms(points, scores, 1.)
    assert torch.equal(circle_nms(points, scores, 1., max_out=5), keep[:5])


def test_agrees_with_the_numba_function_of_mmdet3d():
    pytest.importorskip('numba')
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    layers = pytest.importorskip('mmdet3d.models.layers')
    points, scores = make_points(150)
    dets = torch.cat([points, scores[:, None]], 1)
    for squared in (0.175, 1., 4.):
        want = layers.circle_nms.py_func(
            dets.numpy(), squared, post_max_size=83)
        keep = circle_nms(points, scores, squared, max_out=83)
        assert keep.tolist() == [int(i) for i in want]


@pytest.mark.parametrize('call, error', [
    (lambda p, s: circle_nms(p[:, :1], s, 1.), ValueError),
    (lambda p, s: circle_nms(p, s[1:], 1.), ValueError),
    (lambda p, s: circle_nms(p.long(), s, 1.), TypeError),
])
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match='must'):
        call(*make_points(4))
