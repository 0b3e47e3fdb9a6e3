"""The k nearest points."""

import math

import pytest
import torch

from mmturbox.ops import OPERATORS, knn

OPS = torch.ops.mmturbox


def make_clouds(points, centers, batch=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(points)
    cloud = torch.randn(batch, points, 3, generator=generator) * 5
    queries = torch.randn(batch, centers, 3, generator=generator) * 5
    return cloud.to(dtype), queries.to(dtype)


@pytest.mark.parametrize('dtype', [
    torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_neighbours_are_those_of_sorted_distances(device, dtype):
    points, centers = make_clouds(150, 40, dtype=dtype)
    index, squared = OPS.k_nearest(points.to(device), centers.to(device), 9)
    wide = torch.float64
    d2 = (centers.to(wide)[:, :, None] - points.to(wide)[:, None]).square()
    want, order = d2.sum(-1).sort(dim=2, stable=True)
    assert squared.dtype == (wide if dtype == wide else torch.float32)
    torch.testing.assert_close(
        squared.cpu().to(wide), want[..., :9], rtol=1e-5, atol=1e-5)
    if dtype in (torch.float32, wide):
        assert torch.equal(index.cpu().long(), order[..., :9])


@pytest.mark.parametrize('points, centers, k', [
    (1, 1, 1), (2, 5, 3), (64, 33, 64), (65, 2, 1), (700, 130, 33),
    (0, 4, 2), (5, 0, 2), (300, 3, 150)])
def test_clouds_of_many_sizes_match_the_reference(device, points, centers, k):
    arguments = [x.to(device) for x in make_clouds(points, centers)]
    for found, want in zip(
            OPS.k_nearest(*arguments, k),
            OPERATORS['k_nearest'](*arguments, k), strict=True):
        assert torch.equal(found, want)


def test_equally_near_points_are_taken_by_index(device):
    grid = torch.cartesian_prod(*[torch.arange(8.)] * 3)
    order = torch.randperm(512, generator=torch.Generator().manual_seed(0))
    points = grid[order][None].to(device)
    index, squared = OPS.k_nearest(points, points[:, :60] + 0.5, 20)
    same = squared.diff() == 0
    assert same.sum() > 100 and bool((index.diff()[same] > 0).all())
    want = OPERATORS['k_nearest'](points, points[:, :60] + 0.5, 20)[0]
    assert torch.equal(index, want)


def test_points_that_are_not_finite_are_no_neighbours(device):
    """KF-A3."""
    points, centers = make_clouds(100, 20, batch=1)
    points[0, ::3, 1] = math.nan
    points[0, 1, 0] = math.inf
    centers[0, 4, 2] = math.nan
    centers[0, 5, 2] = -math.inf
    found = knn(8, points.to(device), centers.to(device)).cpu()[0].t()
    kept = points[0].isfinite().all(1).nonzero()[:, 0]
    want = kept[knn(8, points[:, kept], centers)[0].t().long()].int()
    want[4:6] = 0
    assert torch.equal(found, want)
    squared = OPS.k_nearest(points.to(device), centers.to(device), 90)[1]
    assert torch.equal(
        squared.cpu().isfinite().sum(2)[0].bool(),
        centers.isfinite().all(2)[0])


def test_layouts(device):
    points, centers = (x.to(device) for x in make_clouds(50, 20))
    found = knn(4, points, centers)
    assert found.shape == (2, 4, 20) and found.dtype == torch.int32
    assert found.is_contiguous()
    transposed = [x.transpose(1, 2).contiguous() for x in (points, centers)]
    assert torch.equal(knn(4, *transposed, True), found)
    wide = torch.cat([points] * 2, 2)[:, :, 3:]
    assert torch.equal(knn(4, wide, centers), found)
    assert torch.equal(knn(1, points)[:, 0].cpu(),
                       torch.arange(50).int().expand(2, -1))


def test_results_do_not_depend_on_the_number_of_threads():
    points, centers = make_clouds(900, 700)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = OPS.k_nearest(points, centers, 16)
        torch.set_num_threads(3)
        for first, second in zip(
                one, OPS.k_nearest(points, centers, 16), strict=True):
            assert torch.equal(first, second)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('k, points, centers, message', [
    (0, torch.zeros(1, 5, 3), None, 'k must be positive'),
    (1, torch.zeros(5, 3), None, 'xyz'),
    (1, torch.zeros(1, 5, 3), torch.zeros(1, 5, 4), 'center_xyz'),
    (1, torch.zeros(1, 5, 3), torch.zeros(2, 5, 3), 'batch'),
    (1, torch.zeros(1, 5, 3), torch.zeros(1, 5, 3).double(), 'dtype'),
])
def test_wrong_input_is_named(k, points, centers, message):
    with pytest.raises(ValueError, match=message):
        knn(k, points, centers)


def test_operator_passes_opcheck():
    torch.library.opcheck(OPS.k_nearest.default, (*make_clouds(20, 7), 3))
