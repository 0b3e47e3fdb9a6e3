"""mmdet3d's dataset and metric take the set in all the ways they know.

LiDAR and multi-view loading, and the metric for LiDAR boxes, are tested with
the converter that writes the info files.
"""

from pathlib import Path

import numpy as np
import pytest

CLASSES = ('car', 'truck', 'trailer', 'bus', 'construction_vehicle',
           'bicycle', 'motorcycle', 'pedestrian', 'traffic_cone', 'barrier')
CAMERAS = ('CAM_FRONT', 'CAM_FRONT_RIGHT', 'CAM_FRONT_LEFT', 'CAM_BACK',
           'CAM_BACK_LEFT', 'CAM_BACK_RIGHT')
PREFIX = 'NuScenes metric/pred_instances_3d_NuScenes'


@pytest.fixture(scope='module')
def mmdet3d():
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    import mmdet3d.datasets
    import mmdet3d.evaluation
    return mmdet3d


def images_of(mmdet3d, root, load_type, **kwargs):
    from mmengine.registry import DefaultScope
    with DefaultScope.overwrite_default_scope('mmdet3d'):
        return mmdet3d.datasets.NuScenesDataset(
            data_root=str(root),
            ann_file='nuscenes_infos_val.pkl',
            load_type=load_type,
            metainfo=dict(classes=CLASSES, version='v1.0-mini'),
            modality=dict(use_lidar=False, use_camera=True),
            data_prefix={c: f'samples/{c}' for c in CAMERAS},
            box_type_3d='Camera',
            use_valid_flag=True,
            **kwargs)


def test_frames_are_loaded_for_the_field_of_view(mmdet3d, official_root):
    """Without ``default_cam_key``: for it mmdet3d multiplies intrinsics as if
    they were 4 x 4, which they are not in its own nuScenes files either."""
    dataset = images_of(mmdet3d, official_root, 'fov_image_based')
    assert len(dataset) == 8
    for i in range(8):
        images = dataset.get_data_info(i)['images']
        assert set(images) == set(CAMERAS)
        for image in images.values():
            assert Path(image['img_path']).is_file()
            assert np.shape(image['cam2img']) == (3, 3)


def score(mmdet3d, dataset, root, change) -> dict:
    """Of the annotations as a monocular detector's results.

    Args:
        change: of (N, 9) camera boxes.
    """
    import torch
    metric = mmdet3d.evaluation.NuScenesMetric(
        data_root=str(root), ann_file=str(root / 'nuscenes_infos_val.pkl'))
    metric.dataset_meta = dataset.metainfo
    for i in range(len(dataset)):
        info = dataset.get_data_info(i)
        truth = info['eval_ann_info']
        boxes = truth['gt_bboxes_3d']
        labels = torch.as_tensor(truth['gt_labels_3d']).long()
        # A scalar where an image shows nothing.
        attributes = np.atleast_1d(truth['attr_labels'])[:len(labels)]
        metric.process({}, [
            dict(
                sample_idx=info['sample_idx'],
                pred_instances=dict(),
                pred_instances_3d=dict(
                    bboxes_3d=boxes.new_box(change(boxes.tensor.clone())),
                    labels_3d=labels,
                    scores_3d=torch.full((len(labels), ), .5),
                    attr_labels=torch.as_tensor(attributes)))
        ])
    return metric.evaluate(len(dataset))


def test_perfect_boxes_of_cameras_are_merged_and_score_nearly_all(
        mmdet3d, official_root, monkeypatch):
    """What FCOS3D and PGD are judged by: six images a frame, boxes in the
    cameras' frames. mmdet3d lists boxes without LiDAR points for cameras too;
    the benchmark leaves them out, so they count as false."""
    import torch
    if not torch.cuda.is_available():
        # The metric moves the boxes to a GPU to merge them.
        monkeypatch.setattr(torch.Tensor, 'cuda', lambda self: self)
    dataset = images_of(
        mmdet3d, official_root, 'mv_image_based', test_mode=True)
    assert len(dataset) == 6 * 8
    result = score(mmdet3d, dataset, official_root, lambda boxes: boxes)
    assert result[f'{PREFIX}/mAP'] > .9, result
    assert result[f'{PREFIX}/mATE'] < .05
    assert result[f'{PREFIX}/mASE'] < .05
    assert result[f'{PREFIX}/mAOE'] < .05
    assert result[f'{PREFIX}/mAVE'] < .1
    assert result[f'{PREFIX}/mAAE'] < .05

    def farther(boxes):
        boxes[:, 2] += 2.5
        return boxes

    wrong = score(mmdet3d, dataset, official_root, farther)
    assert wrong[f'{PREFIX}/mAP'] < .5
