"""Paths of lines and arcs are what their pieces say."""

import numpy as np
import pytest

from mmturbox.datasets.synthetic.paths import ArcPath, connect, ribbon

PATH = ArcPath((3., -2., .7), ((10., 0.), (8., .1), (6., -.2), (5., 0.)))


def test_a_path_integrates_its_curvature():
    s = np.linspace(0., PATH.length, 29001)
    xy, heading = PATH.at(s)
    curvature = PATH.curvature((s[1:] + s[:-1]) / 2)
    step = np.diff(s)
    turned = .7 + np.concatenate([[0.], np.cumsum(curvature * step)])
    np.testing.assert_allclose(heading, turned, atol=1e-3)
    middle = (heading[1:] + heading[:-1]) / 2
    walked = np.cumsum(
        np.stack([np.cos(middle), np.sin(middle)], 1) * step[:, None], 0)
    np.testing.assert_allclose(xy[1:], walked + [3., -2.], atol=1e-4)


def test_ends_are_extended():
    xy, heading = PATH.at(np.array([-2., PATH.length + 3.]))
    x, y, end = PATH.end
    np.testing.assert_allclose(
        xy[0], [3. - 2 * np.cos(.7), -2. - 2 * np.sin(.7)])
    np.testing.assert_allclose(xy[1],
                               [x + 3 * np.cos(end), y + 3 * np.sin(end)])
    np.testing.assert_allclose(heading, [.7, end])


@pytest.mark.parametrize('left', [-4., 2.5])
def test_a_parallel_keeps_its_distance(left):
    other = PATH.offset(left)
    share = np.linspace(0., 1., 50)
    for piece in range(4):
        low, high = PATH.breaks[piece:piece + 2]
        s = low + share * (high - low)
        low, high = other.breaks[piece:piece + 2]
        xy, heading = PATH.at(s)
        away = other.at(low + share * (high - low))[0] - xy
        normal = np.stack([-np.sin(heading), np.cos(heading)], 1)
        np.testing.assert_allclose(away, left * normal, atol=1e-9)


def test_a_parallel_beyond_the_centre_of_an_arc_is_refused():
    with pytest.raises(ValueError, match='curvature'):
        PATH.offset(-5.1)


def test_reversed_and_cut_lie_on_the_path():
    back = PATH.reversed()
    s = np.linspace(0., PATH.length, 40)
    np.testing.assert_allclose(
        back.at(PATH.length - s)[0], PATH.at(s)[0], atol=1e-9)
    part = PATH.cut(7., 21.)
    assert part.length == pytest.approx(14.)
    np.testing.assert_allclose(
        part.at(s * .4)[0], PATH.at(7. + s * .4)[0], atol=1e-9)
    whole = PATH.cut(0., 12.) + PATH.cut(12., PATH.length)
    np.testing.assert_allclose(whole.at(s)[0], PATH.at(s)[0], atol=1e-9)


def test_a_polyline_stays_within_its_sagitta():
    points = PATH.polyline(sagitta=.02)
    dense = PATH.at(np.linspace(0., PATH.length, 2000))[0]
    a, b = points[:-1], points[1:]
    along = b - a
    share = ((dense[:, None] - a) * along).sum(-1) / (along**2).sum(-1)
    near = a + np.clip(share, 0., 1.)[..., None] * along
    gap = np.linalg.norm(dense[:, None] - near, axis=-1).min(1)
    assert .01 < gap.max() <= .0201
    np.testing.assert_allclose(points[[0, -1]], dense[[0, -1]])


@pytest.mark.parametrize('end', [(10., 6., np.pi / 2), (14., -3., -1.),
                                 (20., 0., 0.)])
def test_connect_meets_both_poses(end):
    path = connect((0., 0., 0.), end)
    np.testing.assert_allclose(path.end[:2], end[:2], atol=1e-9)
    assert np.cos(path.end[2] - end[2]) == pytest.approx(1.)
    assert path.poses[0].tolist() == [0., 0., 0.]


def test_connect_refuses_what_no_single_arc_does():
    with pytest.raises(ValueError, match='no single arc'):
        connect((0., 0., 0.), (-5., 6., np.pi / 2))


def test_a_ribbon_goes_round_counter_clockwise():
    x, y = ribbon(PATH, 2., -1.).T
    area = .5 * (x * np.roll(y, -1) - np.roll(x, -1) * y).sum()
    turned = .8 - 1.2
    assert area == pytest.approx(
        3 * PATH.length + turned * (1**2 - 2**2) / 2, rel=1e-3)
