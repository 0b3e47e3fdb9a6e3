"""Furthest point sampling."""

import math

import pytest
import torch

from mmturbox.ops import (
    OPERATORS,
    furthest_point_sample,
    furthest_point_sample_with_dist,
)

OPS = torch.ops.mmturbox


def make_cloud(batch, number, dtype=torch.float32):
    generator = torch.Generator().manual_seed(number)
    cloud = torch.randn(batch, number, 3, generator=generator)
    return (cloud * torch.tensor([20., 20, 2])).to(dtype)


def plain_sample(points, picks):
    """One cloud, point after point."""
    points = points.float() if points.dtype != torch.float64 else points
    real = [i for i in range(len(points)) if points[i].isfinite().all()]
    chosen, least = [], dict.fromkeys(real, math.inf)
    for _ in range(picks):
        chosen.append(max(real, key=lambda i: (least[i], -i)) if real else 0)
        for i in real:
            dx, dy, dz = points[i] - points[chosen[-1]]
            least[i] = min(least[i], float(dx * dx + dy * dy + dz * dz))
    return chosen


@pytest.mark.parametrize('dtype', [
    torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_picks_are_those_of_the_plain_loop(device, dtype):
    points = make_cloud(2, 18, dtype)
    found = furthest_point_sample(points.to(device), 20).cpu()
    assert found.dtype == torch.int32
    assert found.tolist() == [plain_sample(cloud, 20) for cloud in points]


@pytest.mark.parametrize('number', [1, 33, 64, 65, 300, 2100])
def test_clouds_of_many_sizes_match_the_reference(device, number):
    points = make_cloud(2, number).to(device)
    picks = min(number + 2, 12)
    assert torch.equal(
        furthest_point_sample(points, picks),
        OPERATORS['furthest_point_sample'](points, picks))


def test_equally_far_points_are_taken_by_index(device):
    grid = torch.cartesian_prod(*[torch.arange(5.)] * 3)[None].to(device)
    order = torch.randperm(125, generator=torch.Generator().manual_seed(0))
    cloud = grid[:, order.to(device)]
    assert furthest_point_sample(cloud, 15).cpu()[0].tolist() == (
        plain_sample(cloud[0].cpu(), 15))
    same = torch.ones(1, 100, 3, device=device)
    assert furthest_point_sample(same, 5).cpu().tolist() == [[0] * 5]


def test_picks_are_those_of_the_finite_points(device):
    """KF-A3."""
    points = make_cloud(1, 200)
    bad = torch.zeros(200, dtype=torch.bool)
    bad[[0, 1, 50, 64, 199]] = True
    broken = points.clone()
    for axis, value in enumerate((math.nan, math.inf, -math.inf)):
        broken[0, bad, axis % 3] = value
        found = furthest_point_sample(broken.to(device), 12).cpu()
        kept = (~bad).nonzero()[:, 0]
        want = kept[furthest_point_sample(points[:, ~bad], 12)[0].long()]
        assert torch.equal(found[0].long(), want)
    nothing = torch.full((1, 5, 3), math.nan, device=device)
    assert furthest_point_sample(nothing, 3).cpu().tolist() == [[0, 0, 0]]
    far = torch.tensor([[[0., 0, 0], [3e38, 0, 0], [1, 0, 0]]])
    assert furthest_point_sample(far.to(device), 3).cpu().tolist() == [
        plain_sample(far[0], 3)]


def test_given_distances(device):
    points = make_cloud(2, 100)
    distances = torch.cdist(points, points).square()
    found = furthest_point_sample_with_dist(distances.to(device), 20).cpu()
    want = OPERATORS['furthest_point_sample_with_dist'](distances, 20)
    assert torch.equal(found, want)
    assert len(set(found[0].tolist())) == 20
    distances[0, 7] = distances[0, :, 7] = math.nan
    distances[0, 0] = distances[0, :, 0] = math.nan
    found = furthest_point_sample_with_dist(distances.to(device), 20).cpu()
    assert found[0, 0] == 1
    assert not {0, 7} & set(found[0].tolist())


def test_empty_and_strided_clouds(device):
    assert furthest_point_sample(
        torch.zeros(0, 5, 3, device=device), 2).shape == (0, 2)
    assert furthest_point_sample(
        torch.zeros(2, 0, 3, device=device), 0).shape == (2, 0)
    wide = torch.cat([make_cloud(2, 80)] * 2, 2).to(device)
    view = wide.flip(1)[:, ::2, 1:4]
    assert torch.equal(
        furthest_point_sample(view, 20),
        furthest_point_sample(view.contiguous(), 20))


def test_results_do_not_depend_on_the_number_of_threads():
    points = make_cloud(3, 2000)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = furthest_point_sample(points, 300)
        torch.set_num_threads(3)
        assert torch.equal(one, furthest_point_sample(points, 300))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('points, number, message', [
    (torch.zeros(5, 3), 2, 'points_xyz'),
    (torch.zeros(1, 5, 4), 2, 'points_xyz'),
    (torch.zeros(1, 5, 3, dtype=torch.int32), 2, 'points_xyz'),
    (torch.zeros(1, 0, 3), 2, 'cannot pick 2 of 0'),
    (torch.zeros(1, 5, 3), -1, 'cannot pick'),
])
def test_wrong_input_is_named(points, number, message):
    with pytest.raises(ValueError, match=message):
        furthest_point_sample(points, number)


def test_distances_must_be_square():
    with pytest.raises(ValueError, match='points_dist'):
        furthest_point_sample_with_dist(torch.zeros(1, 4, 5), 2)


def test_operators_pass_opcheck():
    points = make_cloud(2, 20)
    torch.library.opcheck(OPS.furthest_point_sample.default, (points, 5))
    torch.library.opcheck(OPS.furthest_point_sample_with_dist.default,
                          (torch.cdist(points, points), 5))
