"""2D boxes are those of mmdet3d's own converter."""

import copy

import numpy as np
import pytest

from mmturbox.datasets.nuscenes.annotations import read_annotations
from mmturbox.datasets.nuscenes.camera_boxes import camera_instances
from mmturbox.datasets.nuscenes.poses import (
    calibrations,
    rigid_many,
    sensor_poses,
)
from mmturbox.datasets.nuscenes.records import RecordMaker

SIZE = (1600, 900)
INTRINSIC = [[1260., 0., 810.], [0., 1260., 490.], [0., 0., 1.]]


def test_every_box_of_every_camera_is_mmdet3ds(nusc, monkeypatch):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    from mmdet3d.datasets import convert_utils
    get_nuscenes_2d_boxes = convert_utils.get_nuscenes_2d_boxes
    row = nusc.get('sample_data', nusc.sample[0]['data']['CAM_FRONT'])
    size = row['width'], row['height']
    # mmdet3d takes every image for 1600 by 900.
    monkeypatch.setattr(convert_utils.post_process_coords, '__defaults__',
                        (size, ))
    make, count, cut_off = RecordMaker(nusc), 0, 0
    for i, sample in enumerate(nusc.sample):
        found = make(sample, i)['cam_instances']
        assert len(found) >= 4
        for channel, boxes in found.items():
            expected = get_nuscenes_2d_boxes(
                nusc, sample['data'][channel], ['', '1', '2', '3', '4'])
            assert len(boxes) == len(expected)
            for ours, theirs in zip(boxes, expected, strict=True):
                assert set(ours) == set(theirs)
                for key, value in theirs.items():
                    np.testing.assert_allclose(
                        ours[key], value, rtol=1e-5, atol=1e-4, err_msg=key)
                width, height = ours['bbox'][2:]
                cut_off += width == size[0] or height == size[1]
            count += len(boxes)
    assert count > 100
    assert cut_off > 5


def test_straight_ahead_is_on_the_optical_axis(nusc):
    record = RecordMaker(nusc)(nusc.sample[1], 0)
    front = record['images']['CAM_FRONT']
    ahead = np.array(front['lidar2cam']) @ [0., 30., 0., 1.]
    assert ahead[2] == pytest.approx(30., abs=2.)
    assert np.abs(ahead[:2]).max() < 1.5
    assert (front['width'], front['height']) > (0, 0)
    assert list(record['images'])[0] == 'CAM_FRONT'
    assert '/' not in front['img_path']


def test_cameras_boxes_can_be_left_out(nusc):
    make = RecordMaker(nusc, cam_instances=False)
    record = make(nusc.sample[0], 0)
    assert 'images' in record and 'cam_instances' not in record


def test_box_around_and_beside_the_camera(nusc):
    """Corners behind are not projected; a box off the image is left out."""
    sample = nusc.sample[0]
    boxes = read_annotations(nusc, sample)
    one = copy.copy(boxes)
    one.rows, one.labels, one.attributes = boxes.rows[:1], [0], [8]
    one.velocity = boxes.velocity[:1]
    one.sizes = np.array([[20., 2., 2.]])
    flat = rigid_many([[1, 0, 0, 0]], [[0, 0, 0]])[0]

    def seen(x, y, z):
        # Global is camera here: z is ahead, the box's length across.
        one.box2global = rigid_many([[1, 0, 0, 0]], [[x, y, z]])
        return camera_instances(one, flat, np.array(INTRINSIC), *SIZE)

    assert seen(0, 0, -1) == []
    assert seen(40, 0, 5) == []
    ahead, = seen(0, 0, 30)
    assert ahead['center_2d'] == pytest.approx([810., 490.])
    assert ahead['bbox'][0] == pytest.approx(810 - 1260 * 10 / 29)
    near, = seen(0, 0, .5)
    assert near['bbox'] == pytest.approx([0, 0, 1600, 900])


def test_no_annotations_give_empty_lists(nusc):
    sample = dict(nusc.sample[0], anns=[])
    record = RecordMaker(nusc)(sample, 0)
    assert record['instances'] == []
    assert set(map(len, record['cam_instances'].values())) == {0}


def test_each_camera_uses_its_own_ego_pose(nusc):
    sample = nusc.sample[0]
    rows = [
        nusc.get('sample_data', sample['data'][c])
        for c in ('LIDAR_TOP', 'CAM_FRONT_LEFT')
    ]
    sensor2ego, ego2global = sensor_poses(nusc, rows,
                                          calibrations(nusc, rows))
    lidar, camera = ego2global @ sensor2ego
    record = RecordMaker(nusc)(sample, 0)
    np.testing.assert_allclose(
        record['images']['CAM_FRONT_LEFT']['lidar2cam'],
        np.linalg.inv(camera) @ lidar,
        atol=1e-3)
