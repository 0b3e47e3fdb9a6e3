"""Hard and dynamic voxelization."""

import math

import numpy as np
import pytest
import torch

from mmturbox.ops import (
    dynamic_voxelize,
    hard_voxelize,
    hard_voxelize_batch,
)
from mmturbox.ops.voxelize import (
    dynamic_voxelize_reference,
    grid_size,
    hard_voxelize_reference,
)

SIZE = [0.5, 0.4, 1.0]
RANGE = [-8.0, -6.0, -2.0, 8.0, 6.0, 2.0]
LARGE = [0.05, 0.05, 0.1]  # 320 x 240 x 40 cells: beyond direct indexing
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EMPTY = {
    'no points': torch.zeros(0, 4),
    'a zero-length slice': torch.rand(10, 4)[3:3],
    'all out of range': torch.rand(100, 4) + 1000,
}


def make_points(number, dtype=torch.float32, seed=0, device='cpu'):
    """Points of five features around the range, some outside."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(number, 5, generator=generator)
    return (points * torch.tensor([4, 3, 1.2, 1, 1])).to(device, dtype)


def plain_cell(point, size, bounds, grid):
    """Independent of the package: one point, numpy scalars.

    Differences and quotients are taken in the points' type (float32 for
    half), against bounds and sizes that were rounded to float32.
    """
    kind = np.float64 if point.dtype == np.float64 else np.float32
    cell = []
    for axis in range(3):
        value = kind(point[axis])
        if not math.isfinite(value):
            return None
        index = math.floor((value - kind(np.float32(bounds[axis]))) /
                           kind(np.float32(size[axis])))
        if not 0 <= index < grid[axis]:
            return None
        cell.insert(0, index)
    return tuple(cell)


def plain_voxels(points, size, bounds, max_points, max_voxels):
    """Independent of the package: a dict of lists, point after point."""
    grid = [round((b - a) / s)
            for a, b, s in zip(bounds[:3], bounds[3:], size, strict=True)]
    voxels = {}
    points = points.cpu()
    as_numpy = points.float() if points.element_size() < 4 else points
    for i, point in enumerate(as_numpy.numpy()):
        cell = plain_cell(point, size, bounds, grid)
        if cell is None or (cell not in voxels
                            and len(voxels) >= max_voxels):
            continue
        members = voxels.setdefault(cell, [])
        if len(members) < max_points:
            members.append(i)
    out = points.new_zeros(len(voxels), max_points, points.shape[1])
    for row, members in zip(out, voxels.values(), strict=True):
        row[:len(members)] = points[members]
    coors = torch.tensor(list(voxels), dtype=torch.int32).view(-1, 3)
    count = torch.tensor([len(m) for m in voxels.values()],
                         dtype=torch.int32)
    return out, coors, count


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('size', [SIZE, LARGE])
def test_hard_voxels_match_plain_python(dtype, size, device):
    points = make_points(800, dtype, device=device)
    found = hard_voxelize(points, size, RANGE, 4, 10000)
    assert_same(found, plain_voxels(points, size, RANGE, 4, 10000))
    assert 100 < len(found[0]) < 800


@pytest.mark.parametrize('size', [SIZE, LARGE])
def test_saturated_voxels_match_plain_python_five_times(size, device):
    """KF-A4: first points, first voxels, in input order."""
    points = make_points(3000, device=device)
    points[:1500, :3] /= 20
    expected = plain_voxels(points, size, RANGE, 3, 50)
    assert len(expected[0]) == 50
    assert int((expected[2] == 3).sum()) > 3
    for _ in range(5):
        assert_same(hard_voxelize(points, size, RANGE, 3, 50), expected)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('size', [SIZE, LARGE])
@pytest.mark.parametrize('max_voxels', [5, 100000])
def test_kernels_equal_the_reference(dtype, size, max_voxels, device):
    points, grid = make_points(900, dtype), grid_size(size, RANGE)
    points[7, 1] = float('nan')
    given = points.to(device)
    rest = ([400, 0, 500], size, RANGE, grid, 2, max_voxels)
    assert_same(
        torch.ops.mmturbox.hard_voxelize(given, *rest),
        hard_voxelize_reference(points, *rest))
    rest = (size, RANGE, grid)
    assert_same([torch.ops.mmturbox.dynamic_voxelize(given, *rest)],
                [dynamic_voxelize_reference(points, *rest)])


def test_results_do_not_depend_on_the_threads():
    points = [make_points(9000), make_points(20000)]
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append((*hard_voxelize_batch(points, LARGE, RANGE, 3, 900),
                            dynamic_voxelize(points[1], LARGE, RANGE)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert_same(other, results[0])


def test_a_batch_equals_its_samples_put_together(device):
    samples = [make_points(n, seed=n, device=device)
               for n in (300, 1, 0, 500)]
    parts = [hard_voxelize(s, SIZE, RANGE, 4, 60) for s in samples]
    voxels, coors, count = hard_voxelize_batch(samples, SIZE, RANGE, 4, 60)
    assert torch.equal(voxels, torch.cat([p[0] for p in parts]))
    assert torch.equal(count, torch.cat([p[2] for p in parts]))
    assert torch.equal(coors, torch.cat([
        torch.nn.functional.pad(p[1], (1, 0), value=b)
        for b, p in enumerate(parts)]))
    assert [len(p[0]) for p in parts].count(60) == 2


def test_dynamic_coordinates_match_plain_python(device):
    points = make_points(500, device=device)
    grid = grid_size(SIZE, RANGE)
    expected = [plain_cell(p, SIZE, RANGE, grid) or (-1, -1, -1)
                for p in points.cpu().numpy()]
    found = dynamic_voxelize(points, SIZE, RANGE)
    assert found.dtype == torch.int32
    assert found.tolist() == [list(cell) for cell in expected]
    assert 0 < expected.count((-1, -1, -1)) < 250


@pytest.mark.parametrize('name', EMPTY)
@pytest.mark.parametrize('dtype', DTYPES)
def test_clouds_without_points_in_range_give_no_voxels(name, dtype, device):
    """KF-A1."""
    points = EMPTY[name].to(device, dtype)
    voxels, coors, count = hard_voxelize(points, SIZE, RANGE, 7, 20)
    assert voxels.shape == (0, 7, 4) and voxels.dtype == dtype
    assert coors.shape == (0, 3) and coors.dtype == torch.int32
    assert count.shape == (0, ) and count.dtype == torch.int32
    assert hard_voxelize_batch([points, points], SIZE, RANGE, 7,
                               20)[1].shape == (0, 4)
    coors = dynamic_voxelize(points, SIZE, RANGE)
    assert coors.shape == (len(points), 3) and bool((coors == -1).all())


@pytest.mark.parametrize('low, high, size', [
    (-10, 40, 0.16), (-51.2, 51.2, 0.8), (0, 1, 0.4), (0, 5, 2.0),
    (-3, 2.5, 0.1), (0, 70.4, 0.05), (-40, 40, 0.32), (0, 0.75, 0.5),
    (-5, 3, 0.15), (0, 7, 2.0)])
def test_coordinates_stay_below_the_grid_of_the_layer(low, high, size,
                                                      device):
    """KF-A2: also where range / size ends in one half."""
    bounds, sizes = [low] * 3 + [high] * 3, [size] * 3
    # As the layers of mmcv and mmdet3d compute it.
    layer = torch.round((torch.tensor([float(high)]) - torch.tensor(
        [float(low)])) / torch.tensor([size])).long().item()
    assert grid_size(sizes, bounds) == [layer] * 3
    edge = torch.linspace(high - 2 * size, high + size, 4001)
    points = edge[:, None].expand(-1, 3).contiguous().to(device)
    for coors in (dynamic_voxelize(points, sizes, bounds),
                  hard_voxelize(points, sizes, bounds, 5, 5000)[1]):
        assert int(coors.max()) == layer - 1


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf, 1e30, -1e30,
                                 3e9])
def test_bad_values_are_out_of_range_and_change_no_other_voxel(bad, device):
    """KF-A3."""
    points = make_points(300, device=device)
    clean = torch.ones(300, dtype=torch.bool)
    for row, axis in ((0, 0), (10, 1), (11, 2), (299, 0)):
        points[row, axis] = bad
        clean[row] = False
    coors = dynamic_voxelize(points, SIZE, RANGE)
    assert bool((coors[~clean] == -1).all())
    assert torch.equal(coors[clean],
                       dynamic_voxelize(points[clean], SIZE, RANGE))
    assert_same(
        hard_voxelize(points, SIZE, RANGE, 3, 40),
        hard_voxelize(points[clean], SIZE, RANGE, 3, 40))


def test_one_point_and_views_of_memory(device):
    points = make_points(200, device=device)
    assert_same(
        hard_voxelize(points[:1], SIZE, RANGE, 2, 9),
        plain_voxels(points[:1], SIZE, RANGE, 2, 9))
    view = make_points(400, device=device).t().contiguous().t()[::2]
    assert not view.is_contiguous()
    assert_same(
        hard_voxelize(view, SIZE, RANGE, 2, 99),
        hard_voxelize(view.contiguous(), SIZE, RANGE, 2, 99))
    assert torch.equal(
        dynamic_voxelize(view, SIZE, RANGE),
        dynamic_voxelize(view.contiguous(), SIZE, RANGE))


def test_operators_pass_opcheck():
    grid = grid_size(SIZE, RANGE)
    points = make_points(50)
    torch.library.opcheck(
        torch.ops.mmturbox.hard_voxelize.default,
        (points, [20, 30], SIZE, RANGE, grid, 3, 10))
    torch.library.opcheck(
        torch.ops.mmturbox.dynamic_voxelize.default,
        (points, SIZE, RANGE, grid))


@pytest.mark.parametrize('change, message', [
    (dict(points=torch.zeros(3, 2)), 'shape'),
    (dict(points=torch.zeros(3, 3).int()), 'floating'),
    (dict(voxel_size=[1, 0, 1]), 'voxel_size'),
    (dict(point_cloud_range=[0, 0, 0, 1]), 'point_cloud_range'),
    (dict(point_cloud_range=[0, 0, 0, 1, 1, -1]), 'no voxel'),
    (dict(max_num_points=-1), 'dynamic_voxelize'),
])
def test_bad_arguments_are_named(change, message):
    arguments = dict(
        points=make_points(3), voxel_size=SIZE, point_cloud_range=RANGE,
        max_num_points=2, max_voxels=2)
    with pytest.raises(ValueError, match=message):
        hard_voxelize(**(arguments | change))


def test_mmdet3d_layers_run_over_it():
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    points = make_points(600)
    layer = mmcv_ops.Voxelization(SIZE, RANGE, 4, (30, 60))
    assert_same(layer(points), hard_voxelize(points, SIZE, RANGE, 4, 30))
    assert_same(layer.eval()(points),
                hard_voxelize(points, SIZE, RANGE, 4, 60))
    assert layer.grid_size.tolist() == grid_size(SIZE, RANGE)
    layer = mmcv_ops.Voxelization(SIZE, RANGE, -1, deterministic=False)
    assert torch.equal(layer(points), dynamic_voxelize(points, SIZE, RANGE))
    for points in EMPTY.values():
        layer = mmcv_ops.Voxelization(SIZE, RANGE, 4, 30)
        assert layer(points)[0].shape == (0, 4, 4)


def test_samples_that_do_not_fit_together_are_named():
    points = make_points(3)
    for other in (points[:, :4], points.double(), points.to('meta')):
        with pytest.raises(ValueError, match='samples must share'):
            hard_voxelize_batch([points, other], SIZE, RANGE, 2, 2)
    with pytest.raises(ValueError, match='at least one'):
        hard_voxelize_batch([], SIZE, RANGE, 2, 2)
    with pytest.raises(ValueError, match='too many to number'):
        hard_voxelize(points, [1e-6] * 3, [-2e3] * 3 + [2e3] * 3, 2, 2)
