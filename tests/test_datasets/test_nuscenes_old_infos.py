"""Old info files become the new ones, or say why not (KF-G1, KF-G2)."""

import copy
import pickle

import numpy as np
import pytest

from mmturbox.datasets import DataError, check_info_file
from mmturbox.datasets.nuscenes.annotations import CLASSES
from mmturbox.datasets.nuscenes.old_infos import update_infos
from mmturbox.datasets.nuscenes.poses import calibrations
from mmturbox.datasets.nuscenes.records import RecordMaker


def rotation_and_translation(lidar2sensor):
    sensor2lidar = np.linalg.inv(np.array(lidar2sensor))
    return dict(
        sensor2lidar_rotation=sensor2lidar[:3, :3],
        sensor2lidar_translation=sensor2lidar[:3, 3])


def old_record(nusc, sample, new):
    """What mmdet3d 1.0's converter made of a sample."""
    def rows(data_token):
        data = nusc.get('sample_data', data_token)
        sensor, = calibrations(nusc, [data])
        return data, sensor, nusc.get('ego_pose', data['ego_pose_token'])

    def sensor(data_token, new_sensor):
        data, sensor, pose = rows(data_token)
        return dict(
            data_path=f'./data/samples of nuscenes/{data["filename"]}',
            type='lidar',
            sample_data_token=data_token,
            sensor2ego_translation=sensor['translation'],
            sensor2ego_rotation=sensor['rotation'],
            ego2global_translation=pose['translation'],
            ego2global_rotation=pose['rotation'],
            timestamp=data['timestamp'],
            **rotation_and_translation(new_sensor))

    data, lidar, pose = rows(sample['data']['LIDAR_TOP'])
    out = dict(
        lidar_path=f'./data/nuscenes/{data["filename"]}',
        num_features=5,
        token=sample['token'],
        sweeps=[
            sensor(s['sample_data_token'], s['lidar_points']['lidar2sensor'])
            for s in new.get('lidar_sweeps', [])
        ],
        cams={
            name: dict(
                sensor(i['sample_data_token'], i['lidar2cam']),
                cam_intrinsic=np.array(i['cam2img']))
            for name, i in new.get('images', {}).items()
        },
        lidar2ego_translation=lidar['translation'],
        lidar2ego_rotation=lidar['rotation'],
        ego2global_translation=pose['translation'],
        ego2global_rotation=pose['rotation'],
        timestamp=sample['timestamp'])
    instances = new['instances']
    out['gt_boxes'] = np.array([i['bbox_3d'] for i in instances])
    out['gt_names'] = np.array([
        CLASSES[i['bbox_label']] if i['bbox_label'] >= 0 else 'animal'
        for i in instances
    ])
    out['gt_velocity'] = np.array([i['velocity'] for i in instances])
    for key in ('num_lidar_pts', 'num_radar_pts'):
        out[key] = np.array([i[key] for i in instances])
    out['valid_flag'] = np.array([i['bbox_3d_isvalid'] for i in instances])
    return out


@pytest.fixture(scope='module')
def new(nusc):
    make = RecordMaker(nusc, cam_instances=False)
    return [make(sample, i) for i, sample in enumerate(nusc.sample[:3])]


@pytest.fixture
def old(nusc, new):
    return copy.deepcopy(
        dict(
            infos=[
                old_record(nusc, *pair)
                for pair in zip(nusc.sample[:3], new, strict=True)
            ],
            metadata=dict(version='v1.0-mini')))


def before_1_0(old):
    """The convention of mmdet3d 0.x."""
    for info in old['infos']:
        boxes = info['gt_boxes']
        info['gt_boxes'] = np.concatenate(
            [boxes[:, [0, 1, 2, 4, 3, 5]], -boxes[:, 6:] - np.pi / 2], 1)
    return old


def save(folder, data, name='nuscenes_infos_train.pkl'):
    folder.mkdir(exist_ok=True)
    with open(folder / name, 'wb') as file:
        pickle.dump(data, file)
    return folder / name


@pytest.mark.parametrize('convention', [lambda old: old, before_1_0])
def test_old_file_becomes_what_the_converter_makes(tmp_path, old, new,
                                                   convention):
    path = save(tmp_path / 'old', convention(old))
    with pytest.raises(DataError, match='create_data.py update-infos'):
        check_info_file(path)
    made = update_infos(path, tmp_path / 'new')
    check_info_file(made)
    with open(made, 'rb') as file:
        found = pickle.load(file)
    assert found['metainfo']['version'] == 'v1.0-mini'
    assert found['metainfo']['info_version'] == '1.1'
    for ours, record in zip(found['data_list'], new, strict=True):
        assert set(ours) <= set(record)
        assert set(ours) >= {'token', 'lidar_points', 'instances'}
        assert ('lidar_sweeps' in ours) == ('lidar_sweeps' in record)
        compare(ours, record)


def compare(ours, theirs):
    """Every value of ours is in theirs, angles apart from full turns."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if key == 'bbox_3d':
                np.testing.assert_allclose(value[:6], theirs[key][:6])
                turns = (value[6] - theirs[key][6]) / (2 * np.pi)
                assert turns == pytest.approx(round(turns), abs=1e-9)
                assert abs(value[6]) <= np.pi + 1e-9
            else:
                compare(value, theirs[key])
    elif isinstance(ours, list) and ours and isinstance(
            ours[0], (dict, list)):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            compare(*pair)
    elif isinstance(ours, (list, float)):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    else:
        assert ours == theirs


def test_more_than_mmdet3d_made_is_carried_over(tmp_path, old, new):
    """Records of SparseDrive and BEVFormer hold what their models need."""
    for info, record in zip(old['infos'], new, strict=True):
        for key in ('scene_token', 'can_bus', 'ego_status',
                    'gt_ego_fut_trajs'):
            info[key] = record[key]
        for key in ('instance_inds', 'gt_agent_fut_trajs',
                    'gt_agent_fut_masks'):
            info[key] = np.array([i[key] for i in record['instances']])
        # BEVFormer's converter leaves the pose of the bus and no yaw.
        info['can_bus'] = np.concatenate(
            [np.ones(7), record['can_bus'][7:16], [0, 0]])
    made = update_infos(save(tmp_path / 'old', old), tmp_path / 'new')
    with open(made, 'rb') as file:
        ours = pickle.load(file)['data_list'][1]
    np.testing.assert_allclose(ours['can_bus'], new[1]['can_bus'])
    for a, b in zip(ours['instances'], new[1]['instances'], strict=True):
        assert a['instance_inds'] == b['instance_inds']
        np.testing.assert_array_equal(a['gt_agent_fut_trajs'],
                                      b['gt_agent_fut_trajs'])


def test_intrinsics_may_have_the_name_that_bevfusion_gives(
        tmp_path, old, new):
    for info in old['infos']:
        for camera in info['cams'].values():
            camera['camera_intrinsics'] = camera.pop('cam_intrinsic')
    made = update_infos(save(tmp_path / 'old', old), tmp_path / 'new')
    with open(made, 'rb') as file:
        ours = pickle.load(file)['data_list'][0]['images']
    for name, image in new[0]['images'].items():
        assert ours[name]['cam2img'] == image['cam2img']


def only(old, *names):
    for info in old['infos']:
        keep = np.isin(info['gt_names'], names)
        for key in ('gt_boxes', 'gt_names', 'gt_velocity', 'num_lidar_pts',
                    'num_radar_pts', 'valid_flag'):
            info[key] = info[key][keep]
    return old


def test_boxes_that_do_not_tell_are_refused_unless_said(tmp_path, old):
    path = save(tmp_path / 'old', only(old, 'traffic_cone'))
    with pytest.raises(DataError, match='cannot tell.*--boxes wlh'):
        update_infos(path, tmp_path / 'new')
    assert not (tmp_path / 'new').exists()
    update_infos(path, tmp_path / 'new', 'lwh')


def test_unknown_yaw_is_refused(tmp_path, old):
    for info in old['infos']:
        info['gt_boxes'][:, 6] += 1.2
        driving = np.isin(info['gt_names'], ['car', 'truck'])
        yaw = info['gt_boxes'][:, 6] - 1.2
        info['gt_velocity'][driving] = 8 * np.stack(
            [np.cos(yaw), np.sin(yaw)], 1)[driving]
    path = save(tmp_path / 'old', old)
    with pytest.raises(DataError, match='do not head where they go'):
        update_infos(path, tmp_path / 'new')


@pytest.mark.parametrize('change, text', [
    (lambda old: old['metadata'].clear(), 'metadata.version'),
    (lambda old: old.update(infos=dict(scene=[])), 'no list but a dict'),
    (lambda old: old['infos'][2].pop('lidar2ego_rotation'),
     'record 2 .*lacks lidar2ego_rotation'),
    (lambda old: old.update(metadata='v1.0-mini'), 'metadata.version'),
    (lambda old: old['infos'][1].pop('gt_velocity'),
     'record 1 .*lacks gt_velocity'),
    (lambda old: old['infos'][1].pop('num_radar_pts'),
     'record 1 .*lacks num_radar_pts'),
    (lambda old: old['infos'][1].update(
        num_lidar_pts=old['infos'][1]['num_lidar_pts'][1:]),
     r'record 1 .*\d+ gt_names but \d+ num_lidar_pts'),
    (lambda old: old['infos'][1].update(
        gt_names=old['infos'][1]['gt_names'][1:]),
     r'record 1 .*gt_boxes of shape \(\d+, 7\)'),
    (lambda old: old['infos'][1].update(
        gt_boxes=np.pad(old['infos'][1]['gt_boxes'], ((0, 0), (0, 2)))),
     r'record 1 .*gt_boxes of shape \(\d+, 9\)'),
    (lambda old: old['infos'][1]['cams']['CAM_BACK'].pop('cam_intrinsic'),
     "record 1 .*lacks 'cam_intrinsic'"),
    (lambda old: old['infos'][1]['sweeps'][0].pop('data_path'),
     "record 1 .*lacks 'data_path'"),
])
def test_what_is_no_nuscenes_file_is_refused(tmp_path, old, change, text):
    change(old)
    with pytest.raises(DataError, match=text):
        update_infos(save(tmp_path / 'old', old), tmp_path / 'new')


@pytest.mark.parametrize('data, text', [
    (dict(metainfo={}, data_list=[]), 'new layout already'),
    ([dict(image=1)], 'no old nuScenes'),
])
def test_other_layouts_are_refused(tmp_path, data, text):
    with pytest.raises(DataError, match=text):
        update_infos(save(tmp_path / 'old', data), tmp_path / 'new')


def test_old_file_is_never_overwritten(tmp_path, old):
    path = save(tmp_path / 'old', old)
    before = path.read_bytes()
    with pytest.raises(DataError, match='exists; choose another --out'):
        update_infos(path, path.parent)
    assert path.read_bytes() == before


def test_test_split_without_boxes(tmp_path, old):
    for info in old['infos']:
        for key in list(info):
            if key.startswith('gt_'):
                del info[key]
    made = update_infos(save(tmp_path / 'old', old), tmp_path / 'new')
    with open(made, 'rb') as file:
        assert pickle.load(file)['data_list'][0]['instances'] == []
