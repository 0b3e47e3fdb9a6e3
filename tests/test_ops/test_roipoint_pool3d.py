"""RoI-point pooling."""

import math

import pytest
import torch

from mmturbox.ops import (
    OPERATORS,
    points_in_boxes_all,
    roipoint_pool3d,
)

OPS = torch.ops.mmturbox


def make_input(points=300, boxes=9, batch=2, channels=4,
               dtype=torch.float32):
    generator = torch.Generator().manual_seed(points)
    cloud = torch.rand(batch, points, 3, generator=generator) * 10 - 5
    features = torch.randn(batch, points, channels, generator=generator)
    rest = torch.rand(batch, boxes, 7, generator=generator)
    offset = torch.tensor([-4, -4, -4, 1, 1, 1, -3.])
    boxes = rest * 6 + offset
    boxes[:, -1:, :3] += 100
    return cloud.to(dtype), features.to(dtype), boxes.to(dtype)


def plain_pool(points, features, boxes, samples):
    inside = points_in_boxes_all(points, boxes).bool()
    shape = (*boxes.shape[:2], samples, 3 + features.shape[2])
    pooled = points.new_zeros(shape)
    empty = torch.zeros(shape[:2], dtype=torch.int32)
    rows = torch.cat([points, features], 2)
    for b in range(shape[0]):
        for m in range(shape[1]):
            found = inside[b, :, m].nonzero()[:, 0].tolist()
            empty[b, m] = not found
            for s in range(samples if found else 0):
                pooled[b, m, s] = rows[b, found[s % min(len(found),
                                                        samples)]]
    return pooled, empty


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('points, boxes, samples', [
    (300, 9, 5), (500, 3, 70), (1, 1, 1), (65, 2, 300)])
def test_first_points_are_taken_and_repeated(device, dtype, points, boxes,
                                             samples):
    arguments = make_input(points, boxes, dtype=dtype)
    pooled, empty = roipoint_pool3d(*(x.to(device) for x in arguments),
                                    samples)
    want, want_empty = plain_pool(*arguments, samples)
    assert torch.equal(pooled.cpu(), want)
    assert torch.equal(empty.cpu(), want_empty) and empty[:, -1].all()
    if points == 300:
        assert not empty.all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_tested_in_float32(device, dtype):
    arguments = [x.to(device) for x in make_input(dtype=dtype)]
    pooled, empty = roipoint_pool3d(*arguments, 20)
    wide = roipoint_pool3d(*(x.float() for x in arguments), 20)
    assert pooled.dtype == dtype and torch.equal(pooled.float(), wide[0])
    assert torch.equal(empty, wide[1])


def test_native_equals_the_reference(device):
    arguments = [x.to(device) for x in make_input(700, 7)]
    arguments[0][0, ::5, 2] = math.nan
    for found, want in zip(
            OPS.roipoint_pool3d(*arguments, 40),
            OPERATORS['roipoint_pool3d'](*arguments, 40), strict=True):
        assert torch.equal(found, want)


def test_points_that_are_not_finite_are_in_no_box(device):
    """KF-A3."""
    points, features, boxes = make_input()
    points[:, ::2, 1] = math.nan
    found = roipoint_pool3d(
        points.to(device), features.to(device), boxes.to(device), 30)
    want = roipoint_pool3d(points[:, 1::2], features[:, 1::2], boxes, 30)
    assert torch.equal(found[0].cpu(), want[0])
    assert torch.equal(found[1].cpu(), want[1])


def test_nothing_to_pool(device):
    points, features, boxes = (x.to(device) for x in make_input())
    pooled, empty = roipoint_pool3d(points[:, :0], features[:, :0], boxes, 5)
    assert pooled.shape == (2, 9, 5, 7) and not pooled.any() and empty.all()
    pooled, empty = roipoint_pool3d(points, features, boxes[:, :0], 5)
    assert pooled.shape == (2, 0, 5, 7) and empty.shape == (2, 0)
    pooled, empty = roipoint_pool3d(points, features, boxes, 0)
    assert pooled.shape == (2, 9, 0, 7) and not empty.all()


def test_gradients(device):
    points, features, boxes = (
        x.to(device) for x in make_input(12, 3, channels=1,
                                         dtype=torch.float64))
    boxes[:, 0, :6] = torch.tensor([0., 0, -9, 9, 9, 18])
    features.requires_grad_()
    torch.autograd.gradcheck(
        lambda x: roipoint_pool3d(points, x, boxes, 6)[0], features)
    points.requires_grad_()
    pooled, empty = roipoint_pool3d(points, features, boxes, 6)
    assert not empty.requires_grad
    pooled.sum().backward()
    assert points.grad.any()
    assert torch.equal(points.grad[..., 0], features.grad[..., 0])


def test_strided_inputs_and_numbers_of_threads(device):
    arguments = [x.to(device) for x in make_input(600)]
    views = [x.transpose(0, 1).contiguous().transpose(0, 1)
             for x in arguments]
    one = roipoint_pool3d(*arguments, 20)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        two = roipoint_pool3d(*views, 20)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


@pytest.mark.parametrize('place, value, message', [
    (0, torch.zeros(2, 300, 4), 'points'),
    (1, torch.zeros(2, 200, 4), 'point_features'),
    (2, torch.zeros(2, 9, 6), 'boxes3d'),
    (2, torch.zeros(1, 9, 7), 'boxes3d'),
    (1, torch.zeros(2, 300, 4).double(), 'dtype'),
])
def test_wrong_input_is_named(place, value, message):
    arguments = list(make_input())
    arguments[place] = value
    with pytest.raises(ValueError, match=message):
        roipoint_pool3d(*arguments)


def test_operator_passes_opcheck():
    points, features, boxes = make_input(30, 2)
    torch.library.opcheck(OPS.roipoint_pool3d.default,
                          (points, features.requires_grad_(), boxes, 4))
