"""Points within a ball."""

import math

import pytest
import torch

from mmturbox.ops import OPERATORS, ball_query

OPS = torch.ops.mmturbox


def make_clouds(points, centers, batch=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(points)
    cloud = torch.rand(batch, points, 3, generator=generator) * 4
    queries = torch.rand(batch, centers, 3, generator=generator) * 4
    queries[:, :3] = cloud[:, :3]
    return cloud.to(dtype), queries.to(dtype)


def plain_query(low, high, samples, points, center):
    """One ball, point after point."""
    if points.dtype != torch.float64:
        points, center = points.float(), center.float()
    low, high = torch.tensor([low, high], dtype=points.dtype).square()
    found = []
    for i, point in enumerate(points):
        x, y, z = point - center
        d2 = x * x + y * y + z * z
        if d2 == 0 or low <= d2 < high:
            found.append(i)
    found = found[:samples]
    return found + [found[0] if found else 0] * (samples - len(found))


@pytest.mark.parametrize('dtype', [
    torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('low, high', [(0, 0.8), (0.4, 0.9), (0, 0.01)])
def test_balls_are_those_of_the_plain_loop(device, dtype, low, high):
    points, centers = make_clouds(70, 20, 1, dtype)
    found = ball_query(low, high, 5, points.to(device), centers.to(device))
    assert found.dtype == torch.int32
    assert found[0].cpu().tolist() == [
        plain_query(low, high, 5, points[0], center) for center in centers[0]]


@pytest.mark.parametrize('points, centers, samples', [
    (1, 3, 1), (1, 5, 3), (64, 33, 70), (65, 3, 4), (513, 40, 5),
    (700, 130, 33), (0, 4, 2), (5, 3, 0)])
@pytest.mark.parametrize('radii', [(0, 0.5), (0.5, 0.7), (0, 50.), (1, 2)])
def test_clouds_of_many_sizes_match_the_reference(device, points, centers,
                                                  samples, radii):
    arguments = [x.to(device) for x in make_clouds(points or 5, centers)]
    arguments[0] = arguments[0][:, :points]
    assert torch.equal(
        ball_query(*radii, samples, *arguments),
        OPERATORS['ball_query'](*arguments, *radii, samples))


@pytest.mark.parametrize('counts, center_counts', [
    ([300, 300], [30, 30]), ([0, 600], [10, 50]), ([600, 0], [10, 50]),
    ([100, 30], [10, 20]), ([9999, 1], [9999, 1]), ([], []),
    ([1, 599], [59, 1])])
def test_stacked_balls(device, counts, center_counts):
    """Also where the counts claim less or more than there is."""
    points, centers = (x.flatten(0, 1) for x in make_clouds(300, 30))
    cuts = [
        torch.tensor(x, dtype=torch.int32, device=device)
        for x in (counts, center_counts)
    ]
    points, centers = points.to(device), centers.to(device)
    found = ball_query(0, 0.6, 7, points, centers, *cuts)
    want = torch.zeros(60, 7, dtype=torch.int32)
    want[:, 0] = -1
    at = center = 0
    for count, number in zip(counts, center_counts, strict=True):
        for m in range(center, min(center + number, 60)):
            row = ball_query(0, 0.6, 7, points[None, at:at + count],
                             centers[None, m:m + 1])[0, 0].cpu()
            near = (points[at:at + count] - centers[m]).norm(dim=1) < 0.6
            if near.any():
                want[m] = row
        at, center = at + count, center + number
    assert torch.equal(found.cpu(), want)
    assert torch.equal(
        found.cpu(), OPERATORS['ball_query_stacked'](
            points, cuts[0], centers, cuts[1], 0.6, 7).cpu())


def test_points_that_are_not_finite_are_in_no_ball(device):
    """KF-A3."""
    points, centers = make_clouds(600, 20, 1)
    points[0, ::3, 1] = math.nan
    points[0, 1, 0] = math.inf
    centers[0, 6, 2] = math.nan
    found = ball_query(0, 1.5, 8, points.to(device), centers.to(device))
    kept = points[0].isfinite().all(1).nonzero()[:, 0]
    want = kept[ball_query(0, 1.5, 8, points[:, kept], centers).long()].int()
    want[0, 6] = 0
    assert torch.equal(found.cpu(), want)


def test_strided_clouds(device):
    points, centers = (x.to(device) for x in make_clouds(600, 40))
    views = [x.transpose(0, 1).contiguous().transpose(0, 1)
             for x in (points, centers)]
    assert not views[0].is_contiguous()
    assert torch.equal(
        ball_query(0, 0.5, 4, *views), ball_query(0, 0.5, 4, points, centers))


def test_results_do_not_depend_on_the_number_of_threads():
    points, centers = make_clouds(3000, 700)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = ball_query(0, 0.3, 16, points, centers)
        torch.set_num_threads(3)
        assert torch.equal(one, ball_query(0, 0.3, 16, points, centers))
    finally:
        torch.set_num_threads(threads)


CLOUD, COUNT = torch.zeros(1, 5, 3), torch.tensor([5]).int()


@pytest.mark.parametrize('arguments, message', [
    ((1, 1, 4, CLOUD, CLOUD), 'min_radius < max_radius'),
    ((0, math.nan, 4, CLOUD, CLOUD), 'min_radius < max_radius'),
    ((0, 1, -1, CLOUD, CLOUD), 'sample_num'),
    ((0, 1, 4, CLOUD[0], CLOUD), 'xyz'),
    ((0, 1, 4, CLOUD, CLOUD.double()), 'dtype'),
    ((0, 1, 4, CLOUD[0], CLOUD[0], COUNT), 'both'),
    ((0, 1, 4, CLOUD, CLOUD, COUNT, COUNT), 'xyz'),
    ((0, 1, 4, CLOUD[0], CLOUD[0], COUNT, COUNT.long()), 'counts'),
])
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ball_query(*arguments)


def test_operators_pass_opcheck():
    points, centers = make_clouds(20, 7)
    torch.library.opcheck(OPS.ball_query.default,
                          (points, centers, 0.0, 1.0, 3))
    torch.library.opcheck(
        OPS.ball_query_stacked.default,
        (points[0], torch.tensor([10, 10]).int(), centers[0],
         torch.tensor([3, 4]).int(), 1.0, 3))
