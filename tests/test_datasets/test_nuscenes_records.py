"""Records against the devkit's own words."""

import numpy as np
import pytest

from mmturbox.datasets.nuscenes.annotations import ATTRIBUTES, _future
from mmturbox.datasets.nuscenes.records import RecordMaker


@pytest.fixture(scope='module')
def records(nusc):
    make = RecordMaker(nusc)
    return [make(sample, i) for i, sample in enumerate(nusc.sample)]


def test_place_in_the_scene_follows_the_chain(nusc, records):
    by_token = {record['token']: record for record in records}
    for record in records:
        scene = nusc.get('scene', record['scene_token'])
        if record['frame_idx'] == 0:
            assert record['prev'] == ''
            assert scene['first_sample_token'] == record['token']
        else:
            before = by_token[record['prev']]
            assert before['next'] == record['token']
            assert before['frame_idx'] == record['frame_idx'] - 1
            assert before['scene_token'] == record['scene_token']
        log = nusc.get('log', scene['log_token'])
        assert record['map_location'] == log['location']


def test_instances_keep_their_identity_over_the_set(nusc, records):
    index_of = {}
    for record in records:
        sample = nusc.get('sample', record['token'])
        for token, instance in zip(
                sample['anns'], record['instances'], strict=True):
            row = nusc.get('sample_annotation', token)
            assert instance['instance_token'] == row['instance_token']
            index = instance['instance_inds']
            assert index_of.setdefault(row['instance_token'], index) == index
            names = [
                nusc.get('attribute', t)['name']
                for t in row['attribute_tokens']
            ] or ['None']
            assert ATTRIBUTES[instance['attr_label']] == names[0]
    assert len(set(index_of.values())) == len(index_of)


def test_agent_futures_are_those_of_the_prediction_helper(nusc, records):
    """Positions in the lidar frame, as SparseDrive's converter builds them:
    the helper's way in the agent's frame, laid on the box."""
    from nuscenes.prediction import (
        PredictHelper,
        convert_local_coords_to_global,
    )
    helper, moved = PredictHelper(nusc), 0
    for record in records:
        sample = nusc.get('sample', record['token'])
        _, boxes, _ = nusc.get_sample_data(sample['data']['LIDAR_TOP'])
        for box, instance in zip(boxes, record['instances'], strict=True):
            local = helper.get_future_for_agent(
                instance['instance_token'],
                record['token'],
                seconds=6,
                in_agent_frame=True)
            trajs, masks = (instance['gt_agent_fut_trajs'],
                            instance['gt_agent_fut_masks'])
            assert trajs.shape == (12, 2) and trajs.dtype == np.float32
            assert masks.shape == (12, ) and masks.dtype == np.float32
            assert masks.sum() == len(local)
            assert masks[:len(local)].all()
            assert not trajs[len(local):].any()
            if len(local):
                ways = convert_local_coords_to_global(local, box.center,
                                                      box.orientation.q)
                np.testing.assert_allclose(
                    box.center[:2] + np.cumsum(trajs[:len(local)], axis=0),
                    ways,
                    atol=1e-4)
                moved += np.abs(trajs).max() > 1
    assert moved > 3


def test_agent_future_is_where_the_box_will_be(nusc, records):
    """Within the tilt of the sensor, and after the vehicle's own motion."""
    by_token = {record['token']: record for record in records}
    checked = 0
    for record in records:
        if record['next'] not in by_token:
            continue
        lidar2global = _lidar2global(record)
        after = by_token[record['next']]
        places = {
            i['instance_token']: _lidar2global(after) @ [*i['bbox_3d'][:3], 1]
            for i in after['instances']
        }
        for instance in record['instances']:
            if instance['instance_token'] not in places:
                continue
            now = instance['bbox_3d']
            step = instance['gt_agent_fut_trajs'][0]
            there = np.linalg.inv(lidar2global) @ places[
                instance['instance_token']]
            np.testing.assert_allclose(
                np.add(now[:2], step), there[:2], atol=.05)
            checked += 1
    assert checked > 20


def _lidar2global(record):
    return np.array(record['ego2global']) @ record['lidar_points']['lidar2ego']


@pytest.mark.parametrize('gap, steps', [(.5, 12), (.51, 12), (1., 6),
                                        (6.1, 1), (6.2, 0)])
def test_agent_future_ends_after_six_seconds(gap, steps):
    """However far apart the annotations are; the devkit's rule."""
    from nuscenes.prediction import PredictHelper

    class Tables:
        sample_annotation = [
            dict(
                token=str(i),
                sample_token=str(i),
                instance_token='agent',
                translation=[float(i), 0., 0.],
                next=str(i + 1) if i < 20 else '') for i in range(21)
        ]

        def get(self, table, token):
            if table == 'sample':
                return dict(timestamp=10**15 + round(1e6 * gap) * int(token))
            return self.sample_annotation[int(token)]

    tables = Tables()
    trajs, masks = _future(tables, tables.get('', '0'), np.pi / 2)
    expected = PredictHelper(tables).get_future_for_agent(
        'agent', '0', seconds=6, in_agent_frame=False)
    assert masks.sum() == len(expected) == steps
    np.testing.assert_allclose(
        trajs, np.outer(masks, [0, 1]), atol=1e-6)


def test_ego_future_is_the_lidars_way(nusc, records):
    by_token = {record['token']: record for record in records}
    for record in records:
        trajs, masks = record['gt_ego_fut_trajs'], record['gt_ego_fut_masks']
        assert trajs.shape == (6, 2) and trajs.dtype == np.float32
        global2lidar = np.linalg.inv(_lidar2global(record))
        place, following = np.zeros(2), record
        for step in range(6):
            following = by_token.get(following['next'])
            assert bool(masks[step]) == (following is not None)
            if following is None:
                assert not trajs[step:].any() and not masks[step:].any()
                break
            place = place + trajs[step]
            there = global2lidar @ _lidar2global(following)[:, 3]
            np.testing.assert_allclose(place, there[:2], atol=2e-3)
        side = trajs.sum(0)[0]
        command = 0 if side >= 2 else 1 if side <= -2 else 2
        assert record['gt_ego_fut_cmd'].tolist() == np.eye(3)[command].tolist()


def test_images_have_the_calibration_of_their_camera(nusc, records):
    for record in records:
        assert len(record['images']) == 6
        for image in record['images'].values():
            data = nusc.get('sample_data', image['sample_data_token'])
            sensor = nusc.get('calibrated_sensor',
                              data['calibrated_sensor_token'])
            assert image['cam2img'] == sensor['camera_intrinsic']


@pytest.mark.parametrize('lidar, radar, valid', [(0, 1, True), (1, 0, True),
                                                 (0, 0, False)])
def test_box_with_a_point_of_either_sensor_is_valid(nusc, monkeypatch, lidar,
                                                    radar, valid):
    sample = nusc.sample[0]
    row = nusc.get('sample_annotation', sample['anns'][0])
    monkeypatch.setitem(row, 'num_lidar_pts', lidar)
    monkeypatch.setitem(row, 'num_radar_pts', radar)
    instance = RecordMaker(nusc)(sample, 0)['instances'][0]
    assert instance['bbox_3d_isvalid'] is valid
    assert instance['num_radar_pts'] == radar


def test_test_tables_give_no_labels(nusc):
    record = RecordMaker(nusc, labels=False)(nusc.sample[0], 0)
    assert record['instances'] == []
    assert not {'cam_instances', 'gt_ego_fut_trajs'} & set(record)
    assert record['can_bus'].shape == (18, )
