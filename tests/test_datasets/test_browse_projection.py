"""Where things are drawn, against the devkit and by hand."""

import numpy as np
import pytest

from mmturbox.datasets.browse.projection import (
    FRONT_BOTTOM,
    NEAR,
    clip,
    corners,
    flatten,
    image_matrix,
    in_image,
    segments_of,
)

CAM2IMG = np.array([[1266., 0., 816.], [0., 1260., 491.], [0., 0., 1.]])


def test_corners_are_the_devkits():
    from nuscenes.utils.data_classes import Box
    from pyquaternion import Quaternion
    box = np.array([3., -8., .4, 4.6, 1.9, 1.7, 2.1])
    length, width, height = box[3:6]
    expected = Box(
        box[:3], (width, length, height),
        Quaternion(axis=(0, 0, 1), radians=box[6])).corners().T
    found = corners(box[None])[0]
    nearest = np.linalg.norm(found[:, None] - expected, axis=-1)
    np.testing.assert_allclose(nearest.min(1), 0, atol=1e-9)
    assert sorted(nearest.argmin(1)) == list(range(8))
    # The devkit's first four are the front; ours too.
    assert set(nearest.argmin(1)[:4]) == {0, 1, 2, 3}
    assert (found[list(FRONT_BOTTOM), 2] < box[2]).all()


def test_a_point_is_drawn_where_the_camera_matrix_says():
    point = np.array([2., -.7, 9.])
    u, v = flatten(point, CAM2IMG)
    assert u == pytest.approx(1266 * 2 / 9 + 816)
    assert v == pytest.approx(1260 * -.7 / 9 + 491)


def test_halving_an_image_keeps_points_on_what_they_show():
    """The edge between two pixels of four is that between two halves."""
    matrix = image_matrix(CAM2IMG, .5)
    point = np.array([1., .2, 5.])
    whole, half = flatten(point, CAM2IMG), flatten(point, matrix)
    np.testing.assert_allclose(half + .5, (whole + .5) / 2)


def test_what_is_behind_the_camera_is_cut_away():
    behind = [[0., 0., -5.], [1., 0., -1.]]
    through = [[0., 0., -1.], [4., 2., 1. + 2 * NEAR]]
    before = [[1., 2., 3.], [4., 5., 6.]]
    found = clip(np.array([behind, through, before]))
    assert len(found) == 2
    assert found[0, :, 2].min() == pytest.approx(NEAR)
    np.testing.assert_allclose(found[0, 0] / found[0, 0, 0] * 2,
                               [2, 1, found[0, 0, 2] / found[0, 0, 0] * 2])
    np.testing.assert_array_equal(found[0, 1], through[1])
    np.testing.assert_array_equal(found[1], before)
    assert len(clip(np.zeros((0, 2, 3)))) == 0


def test_pieces_of_a_line_are_short_and_follow_it():
    line = np.array([[0., 0.], [10., 0.], [10., .3]])
    pieces = segments_of(line, .5)
    assert len(pieces) == 21
    lengths = np.linalg.norm(pieces[:, 1] - pieces[:, 0], axis=1)
    assert lengths.max() <= .5 + 1e-9
    assert lengths.sum() == pytest.approx(10.3)
    np.testing.assert_allclose(pieces[1:, 0], pieces[:-1, 1])
    np.testing.assert_array_equal(pieces[[0, -1], [0, 1]], line[[0, -1]])


def test_figures_beside_the_image_are_left_out():
    figures = np.array([
        [[-9., 5.], [-1., 5.]],
        [[-9., 5.], [200., 5.]],
        [[5., 80.], [6., 90.]],
        [[5., 5.], [6., 6.]],
    ])
    assert in_image(figures, 100, 50).tolist() == [False, True, False, True]
