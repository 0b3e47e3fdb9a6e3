"""Which points lie in which boxes."""

import math

import numpy as np
import pytest
import torch

from mmturbox.ops import points_in_boxes_all, points_in_boxes_part
from mmturbox.ops.points_in_boxes import (
    points_in_boxes_all_reference,
    points_in_boxes_part_reference,
)

OPS = torch.ops.mmturbox


def make_input(points=300, boxes=8, batch=2, dtype=torch.float32,
               device='cpu'):
    generator = torch.Generator().manual_seed(points)
    cloud = torch.rand(batch, points, 3, generator=generator) * 10 - 5
    rest = torch.rand(batch, boxes, 7, generator=generator)
    offset = torch.tensor([-4, -4, -4, 1, 1, 1, -3.])
    return cloud.to(device, dtype), (rest * 6 + offset).to(device, dtype)


def plain_inside(points, boxes):
    """Independent of the package: numpy, corners of the bottom centre."""
    points, boxes = (a.double().cpu().numpy() for a in (points, boxes))
    out = np.zeros((*points.shape[:2], boxes.shape[1]), dtype=np.int32)
    for b, t in np.ndindex(*boxes.shape[:2]):
        x, y, z, dx, dy, dz, yaw = boxes[b, t]
        turn = np.array([[math.cos(yaw), -math.sin(yaw)],
                         [math.sin(yaw), math.cos(yaw)]])
        local = (points[b, :, :2] - (x, y)) @ turn
        height = points[b, :, 2] - z
        out[b, :, t] = ((np.abs(local[:, 0]) < dx / 2) &
                        (np.abs(local[:, 1]) < dy / 2) & (height >= 0) &
                        (height <= dz))
    return torch.from_numpy(out)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_rotated_boxes_match_numpy(dtype, device):
    """KF-A12."""
    points, boxes = make_input(dtype=dtype, device=device)
    inside = plain_inside(points, boxes)
    assert 20 < int(inside.sum()) and int(inside.sum(2).max()) > 1
    found = points_in_boxes_all(points, boxes)
    assert found.dtype == torch.int32 and torch.equal(found.cpu(), inside)
    first = torch.where(inside.any(2), inside.argmax(2), -1)
    found = points_in_boxes_part(points, boxes)
    assert found.dtype == torch.int32
    assert torch.equal(found.cpu(), first.int())


def test_side_faces_are_outside_and_top_and_bottom_inside(device):
    """KF-A12: border points."""
    boxes = torch.tensor([[[1., 2, 3, 2, 4, 6, 0]]], device=device)
    points = torch.tensor([[[0., 2, 4], [2, 2, 4], [1, 0, 4], [1, 4, 4],
                            [1, 2, 3], [1, 2, 9], [1, 2, 2.99],
                            [1, 2, 9.01], [0.01, 0.01, 3]]],
                          device=device)
    expected = [0, 0, 0, 0, 1, 1, 0, 0, 1]
    assert points_in_boxes_all(points, boxes).flatten().tolist() == expected


@pytest.mark.parametrize('axis', [0, 1, 2])
@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_points_that_are_not_finite_are_in_no_box(axis, bad, device):
    """KF-A3: also a NaN z, which mmcv's CPU kernel takes for inside."""
    boxes = torch.tensor([[[0., 0, 0, 4, 4, 4, 0.3]]], device=device)
    points = torch.tensor([[[0., 0, 1], [0, 0, 1]]], device=device)
    points[0, 1, axis] = bad
    assert points_in_boxes_all(points, boxes).flatten().tolist() == [1, 0]
    assert points_in_boxes_part(points, boxes).flatten().tolist() == [0, -1]


def test_boxes_that_are_not_finite_hold_no_point(device):
    points = torch.zeros(1, 1, 3, device=device)
    for axis in range(7):
        boxes = torch.tensor([[[0., 0, -1, 4, 4, 4, 0.3]]], device=device)
        assert points_in_boxes_part(points, boxes).item() == 0
        boxes[..., axis] = math.nan
        assert points_in_boxes_part(points, boxes).item() == -1


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16,
                                   torch.float32, torch.float64])
@pytest.mark.parametrize('number, boxes', [(700, 20), (257, 150), (1, 1)])
def test_kernels_equal_the_reference(dtype, number, boxes, device):
    points, boxes = make_input(number, boxes, dtype=dtype)
    points[:, 50::50, 2] = math.nan
    given = points.to(device), boxes.to(device)
    for op, reference in (
        (OPS.points_in_boxes_all, points_in_boxes_all_reference),
        (OPS.points_in_boxes_part, points_in_boxes_part_reference)):
        found = op(*given)
        assert torch.equal(found, op(*given))
        assert torch.equal(found.cpu(), reference(points, boxes))


def test_no_points_no_boxes_and_views_of_memory(device):
    """KF-A12."""
    points, boxes = make_input(device=device)
    assert points_in_boxes_all(points[:, :0], boxes).shape == (2, 0, 8)
    assert points_in_boxes_all(points, boxes[:, :0]).shape == (2, 300, 0)
    assert points_in_boxes_part(points[:, :0], boxes).shape == (2, 0)
    none = points_in_boxes_part(points, boxes[:, :0])
    assert none.shape == (2, 300) and bool((none == -1).all())
    views = (points[:, ::3], boxes.transpose(0, 1).contiguous().transpose(
        0, 1))
    assert not views[0].is_contiguous() and not views[1].is_contiguous()
    assert torch.equal(
        points_in_boxes_all(*views),
        points_in_boxes_all(*(v.contiguous() for v in views)))


@pytest.mark.parametrize('function', [points_in_boxes_all,
                                      points_in_boxes_part])
@pytest.mark.parametrize('points, boxes, message', [
    (torch.zeros(1, 5, 4), torch.zeros(1, 2, 7), 'points'),
    (torch.zeros(5, 4), torch.zeros(1, 2, 7), 'points'),
    (torch.zeros(1, 5, 3), torch.zeros(1, 2, 9), 'boxes'),
    (torch.zeros(1, 5, 3), torch.zeros(2, 2, 7), 'batch'),
    (torch.zeros(1, 5, 3), torch.zeros(1, 2, 7).double(), 'dtype'),
    (torch.zeros(1, 5, 3).int(), torch.zeros(1, 2, 7).int(), 'floating'),
])
def test_wrong_shapes_are_named(function, points, boxes, message):
    """KF-A12: four columns, nine columns."""
    with pytest.raises(ValueError, match=message):
        function(points, boxes)


def test_operators_pass_opcheck():
    arguments = make_input(9, 2)
    torch.library.opcheck(OPS.points_in_boxes_all.default, arguments)
    torch.library.opcheck(OPS.points_in_boxes_part.default, arguments)


def test_mmcv_functions_run_over_it_on_the_cpu():
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    points, boxes = make_input()
    points[:, 3, 2] = math.nan
    inside = points_in_boxes_all(points, boxes)
    assert torch.equal(mmcv_ops.points_in_boxes_cpu(points, boxes), inside)
    assert torch.equal(mmcv_ops.points_in_boxes_all(points, boxes), inside)
    assert torch.equal(
        mmcv_ops.points_in_boxes_part(points, boxes),
        points_in_boxes_part(points, boxes))
    ext = pytest.importorskip('mmcv._ext')
    out = torch.zeros(2, 300, dtype=torch.int32)
    ext.points_in_boxes_part_forward(boxes, points, out)
    assert torch.equal(out, points_in_boxes_part(points, boxes))
    out = torch.zeros(2, 300, 8, dtype=torch.int32)
    ext.points_in_boxes_all_forward(boxes, points, out)
    assert torch.equal(out, inside)
