"""RoI-aware pooling."""

import math

import pytest
import torch

from mmturbox.ops import OPERATORS, points_in_boxes_all, roiaware_pool3d

OPS = torch.ops.mmturbox


def make_input(points=400, rois=6, channels=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(points)
    cloud = torch.rand(points, 3, generator=generator) * 10 - 5
    features = torch.randn(points, channels, generator=generator)
    rest = torch.rand(rois, 7, generator=generator)
    rois = rest * 6 + torch.tensor([-4, -4, -4, 1, 1, 1, -3.])
    return rois.to(dtype), cloud.to(dtype), features.to(dtype)


def plain_cells(rois, points, out_size):
    """Box -> cell -> points, point after point."""
    inside = points_in_boxes_all(points[None], rois[None])[0].bool()
    cells = {}
    for n, p in inside.t().nonzero().tolist():
        x, y, z, dx, dy, dz, yaw = rois[n].tolist()
        px, py, pz = points[p].tolist()
        turn = (px - x) + 1j * (py - y)
        turn *= complex(math.cos(yaw), -math.sin(yaw))
        place = (turn.real + dx / 2, turn.imag + dy / 2, pz - z)
        cell = tuple(
            min(max(int(at / (size / bins)), 0), bins - 1)
            for at, size, bins in zip(place, (dx, dy, dz), out_size,
                                      strict=True))
        cells.setdefault((n, *cell), []).append(p)
    return cells


def plain_pool(rois, points, features, out_size, max_points, mode):
    out = features.new_zeros(len(rois), *out_size, features.shape[1])
    for cell, members in plain_cells(rois, points, out_size).items():
        rows = features[members[:max_points - 1]]
        if len(rows):
            out[cell] = rows.amax(0) if mode == 'max' else rows.mean(0)
    return out


@pytest.mark.parametrize('mode', ['max', 'avg'])
@pytest.mark.parametrize('out_size, max_points', [
    ((3, 4, 2), 128), ((1, 1, 1), 9), ((5, 5, 5), 2), ((2, 2, 2), 1)])
def test_cells_hold_their_first_points(device, mode, out_size, max_points):
    arguments = make_input(dtype=torch.float64)
    found = roiaware_pool3d(*(x.to(device) for x in arguments), out_size,
                            max_points, mode)
    want = plain_pool(*arguments, out_size, max_points, mode)
    assert found.shape == (6, *out_size, 5)
    assert want.any() or max_points == 1
    torch.testing.assert_close(found.cpu(), want)


@pytest.mark.parametrize('take_max', [True, False])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('points, rois, channels', [
    (700, 9, 33), (1, 1, 1), (300, 0, 2), (0, 3, 2), (40, 3, 70)])
def test_operators_match_the_reference(device, take_max, dtype, points, rois,
                                       channels):
    rois, cloud, features = (
        x.to(device) for x in make_input(points, rois, channels, dtype))
    features[::7] = math.nan
    features[1::7] = -math.inf
    lists = OPS.roiaware_assign(rois, cloud, 3, 2, 4)
    for found, want in zip(
            lists, OPERATORS['roiaware_assign'](rois, cloud, 3, 2, 4),
            strict=True):
        assert torch.equal(found, want)
    pooled, argmax = OPS.roiaware_pool(features, *lists, 5, take_max)
    want, want_argmax = OPERATORS['roiaware_pool'](features, *lists, 5,
                                                   take_max)
    assert torch.equal(argmax, want_argmax)
    torch.testing.assert_close(pooled, want, equal_nan=True)
    grad = torch.randn(pooled.shape, dtype=dtype).to(device)
    arguments = (grad, *lists, argmax, points, 5, take_max)
    torch.testing.assert_close(
        OPS.roiaware_pool_backward(*arguments),
        OPERATORS['roiaware_pool_backward'](*arguments))


@pytest.mark.parametrize('mode', ['max', 'avg'])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(device, mode, dtype):
    rois, points, features = (
        x.to(device) for x in make_input(dtype=dtype))
    wide = [x.float() for x in (rois, points, features)]
    for x in (features, wide[2]):
        x.requires_grad_()
    found = roiaware_pool3d(rois, points, features, 3, mode=mode)
    want = roiaware_pool3d(*wide, 3, mode=mode)
    assert found.dtype == dtype and torch.equal(found, want.to(dtype))
    found.backward(torch.ones_like(found))
    want.backward(torch.ones_like(want))
    torch.testing.assert_close(features.grad, wide[2].grad.to(dtype))


@pytest.mark.parametrize('mode', ['max', 'avg'])
def test_gradcheck(device, mode):
    rois, points, features = (
        x.to(device) for x in make_input(14, 2, 2, torch.float64))
    rois[:, 3:6] += 6
    torch.autograd.gradcheck(
        lambda x: roiaware_pool3d(rois, points, x, 2, 6, mode),
        features.requires_grad_())


def test_points_that_are_not_finite_are_in_no_box(device):
    """KF-A3."""
    rois, points, features = make_input()
    points[::2, 2] = math.nan
    found = roiaware_pool3d(
        rois.to(device), points.to(device), features.to(device), 3)
    want = roiaware_pool3d(rois, points[1::2], features[1::2], 3)
    assert torch.equal(found.cpu(), want)


def test_flat_boxes_and_points_on_faces(device):
    rois = torch.tensor([[0., 0, 1, 2, 2, 0, 0], [0, 0, 1, 2, 2, 2, 0]])
    points = torch.tensor([[0., 0, 1], [0, 0, 3], [0.999, -0.999, 3]])
    features = torch.tensor([[1.], [2], [4]])
    found = roiaware_pool3d(
        rois.to(device), points.to(device), features.to(device), 2).cpu()
    want = torch.zeros(2, 2, 2, 2, 1)
    want[0, 1, 1, 0] = 1
    want[1, 1, 1, 0], want[1, 1, 1, 1], want[1, 1, 0, 1] = 1, 2, 4
    assert torch.equal(found, want)


def test_strided_inputs(device):
    rois, points, features = (x.to(device) for x in make_input(900, 40, 40))
    views = [x.t().contiguous().t() for x in (rois, points, features)]
    assert torch.equal(
        roiaware_pool3d(*views, 4), roiaware_pool3d(rois, points, features, 4))


@pytest.mark.parametrize('mode', ['max', 'avg'])
def test_results_do_not_depend_on_the_number_of_threads(mode):
    rois, points, features = make_input(900, 40, 40)
    features.requires_grad_()
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            out = roiaware_pool3d(rois, points, features, 4, mode=mode)
            results.append(
                (out, *torch.autograd.grad(out.square().sum(), features)))
    finally:
        torch.set_num_threads(threads)
    for one, three in zip(*results, strict=True):
        assert torch.equal(one, three)


@pytest.mark.parametrize('change, message', [
    (dict(rois=torch.zeros(6, 6)), 'rois'),
    (dict(pts=torch.zeros(400, 4)), 'pts'),
    (dict(pts_feature=torch.zeros(300, 4)), 'length'),
    (dict(pts_feature=torch.zeros(400, 4).double()), 'dtype'),
    (dict(mode='sum'), 'mode'),
    (dict(out_size=(1, 0, 1)), 'out_size'),
    (dict(max_pts_per_voxel=0), 'max_pts_per_voxel'),
])
def test_wrong_input_is_named(change, message):
    rois, points, features = make_input()
    arguments = dict(rois=rois, pts=points, pts_feature=features, out_size=2)
    with pytest.raises(ValueError, match=message):
        roiaware_pool3d(**{**arguments, **change})


def test_operators_pass_opcheck():
    rois, points, features = make_input(50, 2, 3)
    torch.library.opcheck(OPS.roiaware_assign.default,
                          (rois, points, 2, 2, 2))
    lists = OPS.roiaware_assign(rois, points, 2, 2, 2)
    for take_max in (True, False):
        pooled, argmax = OPS.roiaware_pool(features, *lists, 5, take_max)
        torch.library.opcheck(
            OPS.roiaware_pool.default,
            (features.clone().requires_grad_(), *lists, 5, take_max))
        torch.library.opcheck(
            OPS.roiaware_pool_backward.default,
            (torch.ones_like(pooled), *lists, argmax, 50, 5, take_max))
