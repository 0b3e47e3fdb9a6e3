"""Sweeps into one cloud."""

import numpy as np
import pytest
import torch

from mmturbox.ops import mmcv_ext, transform_points
from mmturbox.ops.transform_points import transform_points_reference

RANGE = [-10.0, -9.0, -2.0, 10.0, 9.0, 2.0]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def make_sweeps(*numbers, dtype=torch.float32, device='cpu'):
    """Clouds of five columns, rigid motions (the first none), time lags."""
    generator = torch.Generator().manual_seed(sum(numbers))
    scale = torch.tensor([6, 6, 1.2, 50, 9])
    sweeps = [(torch.randn(n, 5, generator=generator) * scale).to(
        device, dtype) for n in numbers]
    angles = torch.linspace(0, 0.7, len(numbers), dtype=torch.float64)
    matrices = torch.zeros(len(numbers), 3, 4, dtype=torch.float64)
    matrices[:, 0, 0] = matrices[:, 1, 1] = angles.cos()
    matrices[:, 1, 0] = angles.sin()
    matrices[:, 0, 1] = -angles.sin()
    matrices[:, 2, 2] = 1
    matrices[1:, :, 3] = torch.randn(
        len(numbers) - 1, 3, generator=generator, dtype=torch.float64)
    return sweeps, matrices.to(device), [0.05 * s for s in range(len(numbers))]


def in_mmdet3d(folder, sweeps, matrices, lags, use_dim, bounds):
    """Stock's transforms, with sweeps in files."""
    mmcv_ext.install()
    transforms = pytest.importorskip('mmdet3d.datasets.transforms')
    structures = pytest.importorskip('mmdet3d.structures')
    listed = []
    for i, (points, matrix) in enumerate(zip(sweeps, matrices, strict=True)):
        points.numpy().tofile(folder / f'{i}.bin')
        lidar2sensor = np.eye(4)
        lidar2sensor[:3, :3] = matrix[:, :3].numpy().T
        lidar2sensor[:3, 3] = -matrix[:, 3].numpy()
        listed.append(dict(
            timestamp=100.0 - lags[i],
            lidar_points=dict(lidar_path=str(folder / f'{i}.bin'),
                              lidar2sensor=lidar2sensor.tolist())))
    results = dict(
        points=structures.LiDARPoints(sweeps[0].clone(), points_dim=5),
        timestamp=100.0, lidar_sweeps=listed[1:])
    load = transforms.LoadPointsFromMultiSweeps(
        sweeps_num=len(sweeps) - 1, use_dim=use_dim, remove_close=True,
        test_mode=True)
    results = load(results)
    return transforms.PointsRangeFilter(bounds)(results)['points'].tensor


@pytest.mark.parametrize('use_dim', [[0, 1, 2, 4], [0, 1, 2, 3, 4]])
def test_it_equals_the_transforms_of_mmdet3d(tmp_path, use_dim, device):
    sweeps, matrices, lags = make_sweeps(3000, 2500, 0, 1700)
    lags = [100.0 - (100.0 - lag) for lag in lags]  # as stock rounds them
    expected = in_mmdet3d(tmp_path, sweeps, matrices, lags, use_dim, RANGE)
    found = transform_points(
        [s.to(device) for s in sweeps], matrices.to(device), lags,
        columns=use_dim, close_radius=[0, 1, 1, 1], point_cloud_range=RANGE)
    assert 1000 < len(expected) < 7000
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('radius, bounds', [(0., []), (2., RANGE)])
@pytest.mark.parametrize('time_column', [-1, 3, 5])
def test_kernels_equal_the_reference(dtype, radius, bounds, time_column,
                                     device):
    sweeps, matrices, lags = make_sweeps(600, 0, 513, 1, dtype=dtype)
    sweeps[0][7, 1] = float('nan')
    sweeps[2][9, 0] = float('inf')
    columns = list(range(6 if time_column == 5 else 5))
    rest = (lags, [0., radius, radius, 0.], bounds, columns[::-1],
            time_column)
    found = torch.ops.mmturbox.transform_points(
        [s.to(device) for s in sweeps], matrices.to(device), *rest)
    expected = transform_points_reference(sweeps, matrices, *rest)
    assert found.dtype == dtype
    assert len(found) == 1114 if not bounds and not radius else len(
        found) < 1100
    torch.testing.assert_close(
        found.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def test_one_point_moves_as_the_matrix_says(device):
    quarter = torch.tensor([[[0., -1, 0, 10], [1, 0, 0, 20], [0, 0, 1, 30]]],
                           device=device)
    points = torch.tensor([[1., 2, 3, 7]], device=device)
    found = transform_points([points], quarter, [0.25], time_column=4)
    assert found.tolist() == [[8, 21, 33, 7, 0.25]]
    found = transform_points([points], quarter, [0.25], time_column=None)
    assert found.tolist() == [[8, 21, 33, 7]]


def test_bounds_are_outside_and_close_points_are_judged_before_the_motion(
        device):
    shift = torch.eye(3, 4, dtype=torch.float64, device=device)[None]
    shift[0, 0, 3] = 5
    points = torch.zeros(6, 3, device=device)
    points[:, 0] = torch.tensor([-5., -4.9, 0.5, -1, 4.9, 5])
    found = transform_points([points], shift, [0], time_column=None,
                             close_radius=1,
                             point_cloud_range=[0, -1, -1, 10, 1, 1])
    torch.testing.assert_close(found[:, 0].cpu(), torch.tensor([.1, 4, 9.9]))


def test_points_that_are_not_finite_are_out_of_range(device):
    """KF-A3."""
    (points, ), matrices, lags = make_sweeps(300, device=device)
    clean = torch.ones(300, dtype=torch.bool, device=device)
    for row, value in ((0, torch.nan), (50, torch.inf), (299, -torch.inf)):
        points[row, row % 3] = value
        clean[row] = False
    matrices[0, 0, 3] = 1
    options = dict(point_cloud_range=RANGE)
    assert torch.equal(
        transform_points([points], matrices, lags, **options),
        transform_points([points[clean]], matrices, lags, **options))


def test_nothing_left_and_views_of_memory(device):
    sweeps, matrices, lags = make_sweeps(300, 200, device=device)
    options = dict(point_cloud_range=[100, 100, 100, 101, 101, 101])
    empty = [s[:0] for s in sweeps]
    for found in (transform_points(sweeps, matrices, lags, **options),
                  transform_points(empty, matrices, lags, columns=[0]),
                  transform_points(sweeps, matrices, lags,
                                   close_radius=1e9)):
        assert len(found) == 0 and found.shape[1] in (1, 5)
    views = [s.t().contiguous().t()[::2] for s in sweeps]
    assert not views[0].is_contiguous()
    assert torch.equal(
        transform_points(views, matrices.transpose(1, 2).contiguous()
                         .transpose(1, 2), lags),
        transform_points([v.contiguous() for v in views], matrices, lags))


def test_sweeps_are_not_written_to():
    sweeps, matrices, lags = make_sweeps(50, 60)
    before = [s.clone() for s in sweeps]
    transform_points(sweeps, matrices, lags)
    assert all(map(torch.equal, sweeps, before))


def test_results_do_not_depend_on_run_or_threads():
    sweeps, matrices, lags = make_sweeps(30000, 9000, 20000)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(transform_points(
                sweeps, matrices, lags, close_radius=1,
                point_cloud_range=RANGE))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(other, results[0]) for other in results[1:])


def test_operator_passes_opcheck():
    sweeps, matrices, lags = make_sweeps(20, 30)
    torch.library.opcheck(
        torch.ops.mmturbox.transform_points.default,
        (sweeps, matrices, lags, [0., 1.], RANGE, [0, 1, 2, 4], 4))


@pytest.mark.parametrize('change, message', [
    (dict(sweeps=[]), 'at least one'),
    (dict(sweeps=[torch.zeros(3, 2)] * 2), 'shape'),
    (dict(sweeps=[torch.zeros(3, 5), torch.zeros(3, 4)]), 'share'),
    (dict(matrices=torch.zeros(2, 4, 4)), 'matrices'),
    (dict(time_lags=[0.]), 'time lags'),
    (dict(time_column=6), 'time_column'),
    (dict(columns=[5]), 'columns'),
    (dict(close_radius=[1., 2, 3]), 'close radii'),
    (dict(point_cloud_range=[1.]), 'point_cloud_range'),
])
def test_bad_arguments_are_named(change, message):
    sweeps, matrices, lags = make_sweeps(3, 4)
    arguments = dict(sweeps=sweeps, matrices=matrices, time_lags=lags)
    with pytest.raises(ValueError, match=message):
        transform_points(**(arguments | change))
