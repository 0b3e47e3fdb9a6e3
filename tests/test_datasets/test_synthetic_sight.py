"""Projection, order and clipping of boxes, against ray casting."""

import numpy as np
import pytest

from mmturbox.datasets.synthetic.cameras import camera_rig
from mmturbox.datasets.synthetic.geometry import rigid, yaw_quaternion
from mmturbox.datasets.synthetic.owners import (
    GROUND,
    SKY,
    owner_map,
    visible_shares,
)

POSE = rigid(yaw_quaternion(.4), [1000., 900., 0.])


def _global_boxes(boxes):
    """(N, 7) ego frame to global frame."""
    boxes = np.array(boxes, dtype=np.float64).reshape(-1, 7)
    boxes[:, :3] = boxes[:, :3] @ POSE[:3, :3].T + POSE[:3, 3]
    boxes[:, 6] += .4
    return boxes


def _standing(x, y, length, width, height, yaw=0.):
    return [x, y, height / 2, length, width, height, yaw]


def _random_boxes(rng, count, reach):
    """Disjoint boxes all around, long and short, some nearly touching."""
    from shapely import affinity, geometry
    # The cameras are within 1.8 m of the origin.
    taken = geometry.Point(0., 0.).buffer(1.9)
    boxes = []
    while len(boxes) < count:
        size = rng.uniform([.3, .3, .5], [.8, 3., 4.])
        size[0] *= rng.choice([1., 5., 25.])
        x, y, yaw = rng.uniform([-reach, -reach, -np.pi],
                                [reach, reach, np.pi])
        shape = affinity.translate(
            affinity.rotate(
                geometry.box(*-size[:2] / 2, *size[:2] / 2),
                yaw,
                use_radians=True), x, y)
        if not taken.intersects(shape):
            taken = taken.union(shape)
            boxes.append(_standing(x, y, *size, yaw))
    return _global_boxes(boxes)


def _cast(camera, boxes):
    """(H, W) owner by intersecting each pixel's ray with each box."""
    width, height = camera.image_size
    v, u = np.mgrid[:height, :width]
    pixels = np.stack([u, v, np.ones_like(u)], -1)
    cam2global = POSE @ camera.cam2ego
    rays = pixels @ np.linalg.inv(camera.cam2img).T @ cam2global[:3, :3].T
    eye = cam2global[:3, 3]
    owner = np.where(rays[..., 2] < 0, GROUND, SKY)
    nearest = np.full(owner.shape, np.inf)
    for i, (x, y, z, *size, yaw) in enumerate(boxes):
        turn = rigid(yaw_quaternion(yaw), [x, y, z])[:3, :3]
        direction, origin = rays @ turn, (eye - (x, y, z)) @ turn
        with np.errstate(divide='ignore'):
            sides = [(s * np.array(size) / 2 - origin) / direction
                     for s in (-1, 1)]
        enter = np.minimum(*sides).max(-1)
        leave = np.maximum(*sides).min(-1)
        met = (enter <= leave) & (enter > 0) & (enter < nearest)
        owner[met], nearest[met] = i, enter[met]
    return owner


def _mistaken(owner, expected):
    """Pixels in 2 x 2 blocks whose owner no pixel beside them should have.

    An edge pixel may go to either side, and what shows less than a pixel of
    itself may show one or none.
    """
    padded = np.pad(expected, 1, mode='edge')
    height, width = expected.shape
    beside = np.stack([
        padded[i:i + height, j:j + width] for i in range(3) for j in range(3)
    ])
    wrong = (beside != owner).all(0)
    return int((wrong[1:, 1:] & wrong[1:, :-1] & wrong[:-1, 1:]
                & wrong[:-1, :-1]).sum())


@pytest.mark.parametrize('seed', range(4))
def test_painting_in_order_equals_casting_rays(seed):
    rng = np.random.default_rng(seed)
    # Dense enough that most boxes hide others.
    boxes = _random_boxes(rng, 60, 40.)
    seen = set()
    for camera in camera_rig((240, 135)):
        owner = owner_map(camera, POSE, boxes)
        expected = _cast(camera, boxes)
        seen |= set(np.unique(expected))
        assert _mistaken(owner, expected) == 0
        assert (owner != expected).mean() < .06
    assert 25 < len(seen) < 60


def test_boxes_beside_and_behind_the_camera_are_cut_at_it():
    boxes = _global_boxes([
        # A wall that passes the front camera on its left, from behind.
        _standing(0., 3.5, 40., 1., 6.),
        # Close to the right, across the camera's plane.
        _standing(1.7, -2.2, 3., 1., 1.2, .3),
        # An arm's length ahead.
        _standing(2.7, -.7, .4, .6, 1.2),
        # Behind.
        _standing(-8., 0., 4., 2., 1.6),
    ])
    camera = camera_rig((400, 225))[0]
    owner = owner_map(camera, POSE, boxes)
    assert (owner == 0).mean() > .1 and (owner == 2).any()
    assert not (owner == 3).any()
    assert _mistaken(owner, _cast(camera, boxes)) == 0


@pytest.mark.parametrize('channel', range(6))
def test_projected_corners_lie_on_the_silhouette(channel):
    """Corners of the convex hull, measured on full-size pixels."""
    import cv2
    camera = camera_rig()[channel]
    rng = np.random.default_rng(channel)
    for distance in (13., 20., 45.):
        xy = distance * np.array([np.cos(camera.yaw), np.sin(camera.yaw)])
        box = _global_boxes(
            _standing(*xy, 4.5, 1.9, 1.6, rng.uniform(-np.pi, np.pi)))
        signs = np.stack(np.meshgrid(*[[-.5, .5]] * 3), -1).reshape(-1, 3)
        turn = rigid(yaw_quaternion(box[0, 6]), box[0, :3])
        corners = np.column_stack([signs * box[0, 3:6], np.ones(8)]) @ turn.T
        image = corners @ camera.global2img(POSE).T
        image = image[:, :2] / image[:, 2:]
        hull = cv2.convexHull(image.astype(np.float32))[:, 0]
        shown = owner_map(camera, POSE, box) == 0
        v, u = np.nonzero(shown)
        assert abs(u.min() - image[:, 0].min()) <= 1.
        assert abs(u.max() - image[:, 0].max()) <= 1.
        assert abs(v.min() - image[:, 1].min()) <= 1.
        assert abs(v.max() - image[:, 1].max()) <= 1.
        pixels = np.stack([u, v], 1)
        for corner in hull:
            assert np.linalg.norm(pixels - corner, axis=1).min() <= 1.
            outward = corner - hull.mean(0)
            beyond = corner + 3. * outward / np.linalg.norm(outward)
            assert not shown[tuple(np.rint(beyond[::-1]).astype(int))]


def test_twice_as_far_is_half_as_large():
    camera = camera_rig()[0]
    heights = []
    for distance in (15., 30., 60.):
        # Depth of the face that is turned to the camera.
        x = camera.translation[0] + distance + .25
        box = _global_boxes(_standing(x, 0., .5, 2., 3.))
        heights.append((owner_map(camera, POSE, box) == 0).any(1).sum())
    expected = 3. * camera.focal[1] / np.array([15., 30., 60.])
    np.testing.assert_allclose(heights, expected, atol=2.)


def test_without_boxes_there_are_ground_and_sky():
    camera = camera_rig()[3]
    owner = owner_map(camera, POSE, np.zeros((0, 7)))
    np.testing.assert_array_equal(owner, _cast(camera, np.zeros((0, 7))))
    assert set(np.unique(owner)) == {GROUND, SKY}
    assert visible_shares([camera], POSE, np.zeros((0, 7))).shape == (0, )


def test_visible_shares_of_a_free_a_half_hidden_and_an_unseen_box():
    boxes = _global_boxes([
        _standing(12., 0., 1., 2., 2.),
        # Its right half is behind the first, seen from the camera.
        _standing(22.3, 2., 1., 4., .8),
        _standing(30., 0., 1., 1., .5),
        _standing(-10., 0., 4., 2., 1.5),
    ])
    free, half, hidden, behind = visible_shares(
        camera_rig((400, 225))[:1], POSE, boxes)
    assert free == 1.
    assert .4 < half < .6
    assert hidden == 0. and behind == 0.


def test_overlapping_boxes_are_still_painted():
    boxes = _global_boxes([
        _standing(15., 0., 4., 2., 2.),
        _standing(16., .5, 4., 2., 3., .5),
        _standing(14.5, -.5, 1., 5., 1.),
    ])
    assert set(np.unique(owner_map(camera_rig()[0], POSE, boxes))) == {
        SKY, GROUND, 0, 1, 2
    }
