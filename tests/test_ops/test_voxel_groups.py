"""Distinct voxels, inverse ids, counts and order of points."""

import math

import pytest
import torch

from mmturbox.ops import dynamic_voxelize, point_groups, voxel_groups
from mmturbox.ops.voxel_groups import (
    point_groups_reference,
    voxel_groups_reference,
)
from mmturbox.ops.voxelize import grid_size

SIZE = [0.5, 0.4, 1.0]
RANGE = [-8.0, -6.0, -2.0, 8.0, 6.0, 2.0]
OPS = torch.ops.mmturbox


def make_coors(number, columns=4, low=-1, high=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, (number, columns), generator=generator)


def make_points(*numbers, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(numbers))
    scale = torch.tensor([4, 3, 1.2, 1])
    return [(torch.randn(n, 4, generator=generator) * scale).to(dtype)
            for n in numbers]


def assert_groups_of(groups, coors):
    """What the words say, in plain Python."""
    rows = [tuple(row) for row in coors.tolist()]
    valid = [min(row) >= 0 for row in rows]
    voxels = sorted({row for row, ok in zip(rows, valid, strict=True) if ok})
    assert groups.coors.tolist() == [list(v) for v in voxels]
    at = {voxel: m for m, voxel in enumerate(voxels)}
    mapping = [at.get(row, -1) for row in rows]
    assert groups.mapping.tolist() == mapping
    assert groups.count.tolist() == [mapping.count(m)
                                     for m in range(len(voxels))]
    order = sorted(range(len(rows)),
                   key=lambda i: (not valid[i], mapping[i], i))
    assert groups.order.tolist() == order


def assert_equal_groups(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize('index', [torch.int32, torch.int64])
@pytest.mark.parametrize('columns', [1, 3, 4])
def test_groups_of_rows_are_as_defined(index, columns, device):
    coors = make_coors(700, columns).to(device, index)
    groups = voxel_groups(coors)
    assert groups.coors.dtype == index
    assert groups.mapping.dtype == groups.count.dtype == torch.int32
    assert groups.order.dtype == torch.int64
    assert_groups_of(groups, coors)


@pytest.mark.parametrize('number, high', [(1, 3), (31, 2), (257, 1),
                                          (3000, 20), (2048, 2**30)])
def test_kernels_equal_the_reference(number, high, device):
    coors = make_coors(number, 2, high=high)
    coors[number // 2] = coors[0]
    assert_equal_groups(
        voxel_groups(coors.to(device)), voxel_groups_reference(coors))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16,
                                   torch.float32, torch.float64])
def test_groups_of_points_are_those_of_their_coordinates(dtype, device):
    samples = [p.to(device) for p in make_points(300, 0, 1, 500, dtype=dtype)]
    found = point_groups(samples, SIZE, RANGE)
    joined = torch.cat([p.cpu() for p in samples])
    assert_equal_groups(found, point_groups_reference(
        joined, [300, 0, 1, 500], SIZE, RANGE, grid_size(SIZE, RANGE)))
    coors = torch.cat([
        torch.nn.functional.pad(dynamic_voxelize(p, SIZE, RANGE), (1, 0),
                                value=b) for b, p in enumerate(samples)])
    assert_equal_groups(found, voxel_groups(coors))


@pytest.mark.parametrize('points', [torch.zeros(0, 4),
                                    torch.rand(100, 4) + 1000])
def test_no_points_in_range_give_no_voxels(points, device):
    """KF-A1."""
    points = points.to(device)
    for groups in (point_groups([points, points[:0]], SIZE, RANGE),
                   voxel_groups(torch.full((len(points), 4), -1).int())):
        assert groups.coors.shape == (0, 4) and groups.count.shape == (0, )
        assert groups.coors.dtype == torch.int32
        assert groups.mapping.tolist() == [-1] * len(points)
        assert groups.order.tolist() == list(range(len(points)))


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf, 1e30])
def test_bad_values_are_left_out(bad, device):
    """KF-A3."""
    points, = make_points(200)
    clean = torch.ones(200, dtype=torch.bool)
    clean[[3, 50, 199]] = False
    points[~clean, 1] = bad
    groups = point_groups([points.to(device)], SIZE, RANGE)
    expected = point_groups([points[clean].to(device)], SIZE, RANGE)
    assert torch.equal(groups.coors, expected.coors)
    assert torch.equal(groups.mapping[clean.to(device)], expected.mapping)
    assert groups.mapping.cpu()[~clean].tolist() == [-1] * 3


def test_far_apart_coordinates_do_not_alias(device):
    far = 2**31 - 1
    coors = torch.tensor([[0, 0, far], [0, far, 0], [0, far, 0],
                          [0, 0, far]], dtype=torch.int32, device=device)
    groups = voxel_groups(coors)
    assert groups.coors.tolist() == [[0, 0, far], [0, far, 0]]
    assert groups.mapping.tolist() == [0, 1, 1, 0]


def test_coordinates_that_span_too_much_are_an_error(device):
    if not torch._C._dispatch_has_kernel_for_dispatch_key(
            'mmturbox::voxel_groups', 'CPU'):
        pytest.skip('the reference has no such limit')
    coors = torch.full((2, 3), 2**31 - 1, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match='2\\^63 cells'):
        voxel_groups(coors)


def test_views_of_memory(device):
    coors = make_coors(400).to(device)
    view = coors.t().contiguous().t()[::2]
    assert not view.is_contiguous()
    assert_equal_groups(voxel_groups(view), voxel_groups(view.contiguous()))
    points = make_points(400)[0].to(device).t().contiguous().t()[::2]
    assert_equal_groups(point_groups([points], SIZE, RANGE),
                        point_groups([points.contiguous()], SIZE, RANGE))


def test_results_do_not_depend_on_run_or_threads():
    coors = make_coors(100000, high=40)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(voxel_groups(coors))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert_equal_groups(other, results[0])


def test_operators_pass_opcheck():
    torch.library.opcheck(OPS.voxel_groups.default, (make_coors(20), ))
    points, = make_points(30)
    torch.library.opcheck(
        OPS.point_groups.default,
        (points, [10, 20], SIZE, RANGE, grid_size(SIZE, RANGE)))


@pytest.mark.parametrize('coors, message', [
    (torch.zeros(3).int(), 'shape'), (torch.zeros(3, 3), 'int32')])
def test_bad_coordinates_are_named(coors, message):
    with pytest.raises(ValueError, match=message):
        voxel_groups(coors)
