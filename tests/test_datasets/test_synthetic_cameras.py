import numpy as np
import pytest

from mmturbox.datasets.synthetic.cameras import FULL_SIZE, camera_rig
from mmturbox.datasets.synthetic.geometry import (
    quaternion_matrix,
    rigid,
    yaw_quaternion,
)


def _image(camera, points, ego2global):
    homogeneous = np.column_stack([points, np.ones(len(points))])
    uvw = homogeneous @ camera.global2img(ego2global).T
    return uvw[:, :2] / uvw[:, 2:], uvw[:, 2]


def test_the_rig_is_nuscenes_six_cameras():
    rig = camera_rig()
    assert [c.channel for c in rig] == [
        'CAM_FRONT', 'CAM_FRONT_RIGHT', 'CAM_BACK_RIGHT', 'CAM_BACK',
        'CAM_BACK_LEFT', 'CAM_FRONT_LEFT'
    ]
    assert all(c.image_size == FULL_SIZE == (1600, 900) for c in rig)
    for camera in rig:
        assert np.isclose(np.linalg.norm(camera.rotation), 1.)
        np.testing.assert_allclose(
            quaternion_matrix(camera.rotation), camera.cam2ego[:3, :3])


def test_a_camera_looks_where_its_yaw_and_pitch_say():
    for camera in camera_rig():
        right, down, forward = camera.cam2ego[:3, :3].T
        cos = np.cos(camera.pitch)
        np.testing.assert_allclose(
            forward, [
                np.cos(camera.yaw) * cos,
                np.sin(camera.yaw) * cos, -np.sin(camera.pitch)
            ],
            atol=1e-12)
        assert abs(right[2]) < 1e-12, 'the camera rolls'
        assert down[2] < -.9


@pytest.mark.parametrize('image_size', [(1600, 900), (704, 256)])
def test_the_six_images_cover_all_directions(image_size):
    azimuth = np.deg2rad(np.arange(0., 360., .5))
    points = np.stack(
        [50 * np.cos(azimuth), 50 * np.sin(azimuth),
         np.full(720, 1.5)], 1)
    covered = np.zeros(720, dtype=bool)
    for camera in camera_rig(image_size):
        uv, depth = _image(camera, points, np.eye(4))
        inside = (uv > -.5).all(1) & (uv < np.array(image_size) - .5).all(1)
        covered |= inside & (depth > 0)
    assert covered.all()


def test_a_smaller_image_averages_the_full_one():
    # Pixel (i, j) of the small image covers the full image's pixels from
    # 4i, 3j on; its centre is their mean.
    points = np.random.default_rng(0).uniform([5., -5., 0.], [40., 5., 4.],
                                              (50, 3))
    full = camera_rig()[0]
    small = full.resized((400, 300))
    uv, _ = _image(full, points, np.eye(4))
    small_uv, _ = _image(small, points, np.eye(4))
    np.testing.assert_allclose(small_uv * (4, 3) + (1.5, 1.), uv)
    assert small.image_size == (400, 300)


def test_the_pose_moves_with_the_vehicle():
    camera = camera_rig()[2]
    pose = rigid(yaw_quaternion(.7), [100., 50., 0.])
    points = np.array([[10., -3., 1.], [12., -9., 2.]])
    moved = points @ pose[:3, :3].T + pose[:3, 3]
    np.testing.assert_allclose(
        _image(camera, moved, pose)[0],
        _image(camera, points, np.eye(4))[0])


def test_an_empty_image_size_is_refused():
    with pytest.raises(ValueError, match='width, height'):
        camera_rig((0, 900))
