"""Info files are what mmdet3d 1.4 makes and reads, and evaluate officially."""

import importlib.util
import os.path as osp
import pickle
from pathlib import Path

import numpy as np
import pytest

from mmturbox.datasets.nuscenes import write_infos
from mmturbox.datasets.nuscenes.annotations import CLASSES
from mmturbox.datasets.synthetic.geometry import (
    inverse_rigid,
    quaternion_matrix,
    rigid,
)
from mmturbox.ops.points_in_boxes import points_in_boxes_all

REAL = Path(__file__).parents[3] / 'shared' / 'data' / 'nuscenes_frame'
RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]
LOAD = [
    dict(type='LoadPointsFromFile', coord_type='LIDAR', load_dim=5, use_dim=5),
    dict(
        type='LoadPointsFromMultiSweeps',
        sweeps_num=9,
        use_dim=[0, 1, 2, 3, 4],
        pad_empty_sweeps=True,
        remove_close=True)
]
ANNOTATIONS = [
    dict(type='LoadAnnotations3D', with_bbox_3d=True, with_label_3d=True),
    dict(type='ObjectRangeFilter', point_cloud_range=RANGE),
    dict(type='ObjectNameFilter', classes=list(CLASSES)),
    dict(
        type='Pack3DDetInputs',
        keys=['points', 'gt_bboxes_3d', 'gt_labels_3d'])
]


@pytest.fixture(scope='module')
def mmdet3d_datasets():
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    import mmdet3d.datasets as datasets
    return datasets


@pytest.fixture
def infos(synthetic_root):
    with open(synthetic_root / 'nuscenes_infos_val.pkl', 'rb') as file:
        return pickle.load(file)


def build(datasets, root, split='train', pipeline=(), **kwargs):
    from mmengine.registry import DefaultScope
    kwargs.setdefault(
        'data_prefix',
        dict(pts='samples/LIDAR_TOP', img='', sweeps='sweeps/LIDAR_TOP'))
    with DefaultScope.overwrite_default_scope('mmdet3d'):
        return datasets.NuScenesDataset(
            data_root=str(root),
            ann_file=f'nuscenes_infos_{split}.pkl',
            pipeline=list(pipeline),
            metainfo=dict(classes=list(CLASSES), version='v1.0-mini'),
            use_valid_flag=True,
            **kwargs)


def test_boxes_and_velocities_are_the_devkits_in_the_lidar_frame(nusc, infos):
    info = infos['data_list'][1]
    sample = nusc.get('sample', info['token'])
    _, boxes, _ = nusc.get_sample_data(sample['data']['LIDAR_TOP'])
    assert len(boxes) == len(info['instances'])
    assert info['timestamp'] == sample['timestamp'] / 1e6
    for box, instance in zip(boxes, info['instances'], strict=True):
        np.testing.assert_allclose(
            instance['bbox_3d'][:3], box.center, atol=1e-6)
        np.testing.assert_allclose(instance['bbox_3d'][3:6],
                                   box.wlh[[1, 0, 2]])
        turn = instance['bbox_3d'][6] - box.orientation.yaw_pitch_roll[0]
        assert abs((turn + np.pi) % (2 * np.pi) - np.pi) < 1e-6
        velocity = nusc.box_velocity(box.token)
        length = np.linalg.norm(velocity)
        if np.isnan(length):
            assert np.isnan(instance['velocity']).all()
        else:
            assert np.linalg.norm(instance['velocity']) == pytest.approx(
                length, rel=.01, abs=1e-6)


def test_sweeps_are_those_of_mmdet3ds_converter(nusc, infos,
                                                mmdet3d_datasets):
    path = osp.join(
        osp.dirname(mmdet3d_datasets.__file__), '..', '.mim', 'tools',
        'dataset_converters', 'nuscenes_converter.py')
    spec = importlib.util.spec_from_file_location('upstream_converter', path)
    upstream = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(upstream)

    info = infos['data_list'][2]
    data = nusc.get('sample_data',
                    nusc.get('sample', info['token'])['data']['LIDAR_TOP'])
    sensor = nusc.get('calibrated_sensor', data['calibrated_sensor_token'])
    pose = nusc.get('ego_pose', data['ego_pose_token'])
    assert len(info['lidar_sweeps']) == 10
    for sweep in info['lidar_sweeps']:
        token = data['prev']
        theirs = upstream.obtain_sensor2top(
            nusc, token, sensor['translation'],
            quaternion_matrix(sensor['rotation']), pose['translation'],
            quaternion_matrix(pose['rotation']))
        assert sweep['sample_data_token'] == token
        assert sweep['timestamp'] == theirs['timestamp'] / 1e6
        expected = inverse_rigid(
            rigid(theirs['sensor2lidar_rotation'],
                  theirs['sensor2lidar_translation']))
        np.testing.assert_allclose(
            sweep['lidar_points']['lidar2sensor'], expected, atol=1e-4)
        data = nusc.get('sample_data', token)


def test_first_sample_has_no_sweeps_key(infos):
    # mmdet3d pads with the key frame only where the key is absent.
    assert 'lidar_sweeps' not in infos['data_list'][0]


def test_mmdet3ds_dataset_and_nine_sweep_pipeline_run(
        synthetic_root, mmdet3d_datasets):
    dataset = build(
        mmdet3d_datasets, synthetic_root, pipeline=LOAD + ANNOTATIONS)
    assert len(dataset) == 3
    for i in range(3):
        sample = dataset[i]
        points = sample['inputs']['points']
        assert points.shape[1] == 5
        lags = points[:, 4].unique()
        assert len(lags) == (1 if i == 0 else 10)
        assert 250_000 < len(points) < 350_000
        boxes = sample['data_samples'].gt_instances_3d
        assert 20 <= len(boxes.bboxes_3d) <= 70
        assert 7 <= len(set(boxes.labels_3d.tolist()) & {*range(10)})


CAMERAS = {
    f'CAM_{name}': f'samples/CAM_{name}'
    for name in ('FRONT', 'FRONT_LEFT', 'FRONT_RIGHT', 'BACK', 'BACK_LEFT',
                 'BACK_RIGHT')
}


def test_mmdet3ds_multi_view_pipeline_runs(synthetic_root,
                                           mmdet3d_datasets):
    dataset = build(
        mmdet3d_datasets,
        synthetic_root,
        pipeline=[
            dict(
                type='LoadMultiViewImageFromFiles',
                to_float32=True,
                num_views=6),
            *ANNOTATIONS[:-1],
            dict(
                type='Pack3DDetInputs',
                keys=['img', 'gt_bboxes_3d', 'gt_labels_3d'])
        ],
        modality=dict(use_lidar=True, use_camera=True),
        data_prefix=dict(
            pts='samples/LIDAR_TOP', sweeps='sweeps/LIDAR_TOP', **CAMERAS))
    sample = dataset[1]
    front = dataset.get_data_info(1)['images']['CAM_FRONT']
    assert sample['inputs']['img'].shape == (6, 3, front['height'],
                                             front['width'])
    assert len(sample['data_samples'].gt_instances_3d.bboxes_3d) > 20


def test_mmdet3ds_monocular_pipeline_runs(synthetic_root, mmdet3d_datasets):
    """``cam_instances`` feed the monocular detectors' own dataset."""
    dataset = build(
        mmdet3d_datasets,
        synthetic_root,
        pipeline=[
            dict(type='LoadImageFromFileMono3D'),
            dict(
                type='LoadAnnotations3D',
                with_bbox=True,
                with_label=True,
                with_attr_label=True,
                with_bbox_3d=True,
                with_label_3d=True,
                with_bbox_depth=True),
            dict(
                type='Pack3DDetInputs',
                keys=[
                    'img', 'gt_bboxes', 'gt_bboxes_labels', 'attr_labels',
                    'gt_bboxes_3d', 'gt_labels_3d', 'centers_2d', 'depths'
                ])
        ],
        modality=dict(use_lidar=False, use_camera=True),
        load_type='mv_image_based',
        box_type_3d='Camera',
        data_prefix=CAMERAS)
    assert len(dataset) == 3 * 6
    front = dataset[0]['data_samples']
    count = len(front.gt_instances.bboxes)
    assert count == len(front.gt_instances_3d.bboxes_3d) > 3
    assert front.gt_instances_3d.attr_labels.max() <= 8
    # Bottom centres, heights along the camera's y axis.
    boxes = front.gt_instances_3d.bboxes_3d
    assert (boxes.bottom_center[:, 1] > boxes.gravity_center[:, 1]).all()


def test_what_was_added_is_filtered_with_the_boxes(synthetic_root,
                                                   mmdet3d_datasets):
    dataset = build(mmdet3d_datasets, synthetic_root)
    info = dataset.get_data_info(0)
    ann = info['ann_info']
    count = len(ann['gt_labels_3d'])
    assert count == sum(i['bbox_3d_isvalid'] for i in info['instances'])
    assert ann['gt_agent_fut_trajs'].shape == (count, 12, 2)
    assert ann['gt_agent_fut_masks'].shape == (count, 12)
    assert ann['instance_inds'].shape == ann['attr_labels'].shape == (count, )
    assert info['can_bus'].shape == (18, )


def test_points_lie_in_the_boxes_as_mmdet3d_reads_them(
        synthetic_root, mmdet3d_datasets):
    """Guards centre, size order and yaw (the half degree of pitch and
    mmdet3d's strict faces cost a few points)."""
    dataset = build(
        mmdet3d_datasets,
        synthetic_root,
        'val',
        pipeline=LOAD[:1] + ANNOTATIONS)
    for i in range(len(dataset)):
        sample = dataset[i]
        gt = sample['data_samples'].gt_instances_3d
        inside = points_in_boxes_all(
            sample['inputs']['points'][None, :, :3].contiguous(),
            gt.bboxes_3d.tensor[None, :, :7].contiguous())[0].sum(0)
        instances = dataset.get_data_info(i)['instances']
        expected = np.array([
            x['num_lidar_pts'] for x in instances if x['num_lidar_pts'] > 0
            and np.abs(x['bbox_3d'][:2]).max() < 51.2
        ])
        assert len(expected) == len(inside)
        assert inside.sum().item() == pytest.approx(expected.sum(), rel=.03)


def test_perfect_predictions_reach_map_one_officially(
        synthetic_root, mmdet3d_datasets):
    import torch
    from mmdet3d.evaluation import NuScenesMetric
    dataset = build(
        mmdet3d_datasets, synthetic_root, 'val', test_mode=True)
    metric = NuScenesMetric(
        data_root=str(synthetic_root),
        ann_file=str(synthetic_root / 'nuscenes_infos_val.pkl'))
    metric.dataset_meta = dataset.metainfo
    for i in range(len(dataset)):
        gt = dataset.get_data_info(i)['eval_ann_info']
        count = len(gt['gt_labels_3d'])
        metric.process({}, [
            dict(
                sample_idx=i,
                pred_instances=dict(),
                pred_instances_3d=dict(
                    bboxes_3d=gt['gt_bboxes_3d'],
                    labels_3d=torch.tensor(gt['gt_labels_3d']),
                    scores_3d=torch.linspace(1., .5, count)))
        ])
    result = metric.evaluate(len(dataset))
    prefix = 'NuScenes metric/pred_instances_3d_NuScenes'
    assert result[f'{prefix}/mAP'] == pytest.approx(1., abs=1e-6)
    assert result[f'{prefix}/mATE'] < .01
    assert result[f'{prefix}/mASE'] < .01
    assert result[f'{prefix}/mAOE'] < .01
    assert result[f'{prefix}/mAVE'] < .05


ADDED = {
    'scene_token', 'prev', 'next', 'frame_idx', 'map_location', 'can_bus',
    'ego_status', 'gt_ego_fut_trajs', 'gt_ego_fut_masks', 'gt_ego_fut_cmd'
}
ADDED_TO_INSTANCES = {
    'attr_label', 'instance_token', 'instance_inds', 'gt_agent_fut_trajs',
    'gt_agent_fut_masks'
}


def test_infos_have_the_keys_of_mmdet3ds_own(infos):
    if not REAL.is_dir():
        pytest.skip(f'no real frame at {REAL}')
    with open(next(REAL.glob('*.pkl')), 'rb') as file:
        real = pickle.load(file)
    ours, theirs = infos['data_list'][0], real['data_list'][0]
    assert set(infos['metainfo']) == set(real['metainfo'])
    for key, value in real['metainfo']['categories'].items():
        assert infos['metainfo']['categories'][key] == value
    # The first frame of a scene has no sweeps, as the real one.
    assert set(theirs) <= set(ours)
    assert set(ours) - set(theirs) == ADDED
    for key in ('images', 'cam_instances'):
        assert list(ours[key]) == list(theirs[key])
    image, real_image = (r['images']['CAM_FRONT'] for r in (ours, theirs))
    assert set(image) - set(real_image) == {'width', 'height'}
    assert set(real_image) <= set(image)
    assert (set(ours['cam_instances']['CAM_FRONT'][0]) == set(
        theirs['cam_instances']['CAM_FRONT'][0]))
    assert set(ours['lidar_points']) == set(theirs['lidar_points'])
    assert (set(ours['instances'][0]) -
            set(theirs['instances'][0]) == ADDED_TO_INSTANCES)
    assert set(theirs['instances'][0]) <= set(ours['instances'][0])


def test_unknown_table_version_is_refused(nusc, tmp_path, monkeypatch):
    monkeypatch.setattr(nusc, 'version', 'v9')
    with pytest.raises(ValueError, match="'v9'.*v1.0-mini"):
        write_infos(nusc, tmp_path)
    assert list(tmp_path.iterdir()) == []
