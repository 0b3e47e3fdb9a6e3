"""A small CenterPoint on pillars, and random batches for it.

mmdet3d is imported when a function is called.
"""

import importlib.util
from pathlib import Path
from typing import Any

import torch

POINT_CLOUD_RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]
VOXEL_SIZE = [1.6, 1.6, 8]
NUM_CLASSES = 10


def import_mmdet3d() -> None:
    """Make mmdet3d's components known and its scope the default."""
    from mmengine.registry import init_default_scope

    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    import mmdet3d.models  # noqa: F401

    import mmturbox.registry  # noqa: F401
    init_default_scope('mmdet3d')


def center_point_config() -> Any:
    """A config with mmdet3d's CenterPoint as ``model``: 64 x 64 pillars, a
    16 x 16 heat map, thin convolutions, all six tasks."""
    from mmengine.config import Config
    folder = importlib.util.find_spec('mmdet3d').submodule_search_locations[0]
    cfg = Config.fromfile(
        Path(folder, '.mim/configs/_base_/models/'
             'centerpoint_pillar02_second_secfpn_nus.py'))
    grid = [64, 64, 1]
    cfg.merge_from_dict(
        dict(
            model=dict(
                data_preprocessor=dict(
                    voxel_layer=dict(
                        max_num_points=20,
                        max_voxels=[1000, 2000],
                        voxel_size=VOXEL_SIZE,
                        point_cloud_range=POINT_CLOUD_RANGE)),
                pts_voxel_encoder=dict(
                    feat_channels=[16],
                    voxel_size=VOXEL_SIZE,
                    point_cloud_range=POINT_CLOUD_RANGE),
                pts_middle_encoder=dict(in_channels=16, output_shape=grid[:2]),
                pts_backbone=dict(
                    in_channels=16,
                    out_channels=[16, 16, 32],
                    layer_nums=[1, 1, 1]),
                pts_neck=dict(
                    in_channels=[16, 16, 32], out_channels=[16, 16, 16]),
                pts_bbox_head=dict(
                    in_channels=48,
                    share_conv_channel=16,
                    separate_head=dict(head_conv=16),
                    bbox_coder=dict(
                        max_num=100,
                        voxel_size=VOXEL_SIZE[:2],
                        pc_range=POINT_CLOUD_RANGE[:2])),
                train_cfg=dict(
                    pts=dict(
                        grid_size=grid,
                        voxel_size=VOXEL_SIZE,
                        point_cloud_range=POINT_CLOUD_RANGE)),
                test_cfg=dict(
                    pts=dict(
                        voxel_size=VOXEL_SIZE[:2],
                        pc_range=POINT_CLOUD_RANGE[:2])))))
    return cfg


def random_instances(count: int, seed: int, hard: bool = True) -> Any:
    """``gt_instances_3d`` of one sample.

    Args:
        count: number of boxes.
        seed: of the boxes.
        hard: add what a data set may hold: ignored and unknown labels, boxes
            without a size, out of range or just beyond the border, missing
            velocities.
    """
    from mmdet3d.structures import LiDARInstance3DBoxes
    from mmengine.structures import InstanceData
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(count, 9, generator=generator)
    low = torch.tensor([-51., -51., -3., .3, .3, .5, -3.2, -5., -5.])
    high = torch.tensor([51., 51., 1., 12., 4., 4., 3.2, 5., 5.])
    rows = low + rows * (high - low)
    labels = torch.randint(0, NUM_CLASSES, (count, ), generator=generator)
    if hard:

        def some(share):
            return torch.rand(count, generator=generator) < share

        rows[some(.1), 0] = -51.5  # truncates to the first column
        rows[some(.1), 1] = 60.
        rows[some(.05), 3] = 0.
        rows[some(.05), 4] = 0.
        rows[some(.05), 5] = 0.
        rows[some(.05), 3] = 200.
        rows[some(.1), 7:] = float('nan')
        labels[some(.1)] = -1
        labels[some(.03)] = NUM_CLASSES + 1
    return InstanceData(
        bboxes_3d=LiDARInstance3DBoxes(rows, box_dim=9), labels_3d=labels)


def random_points(count: int, seed: int) -> torch.Tensor:
    """(count, 5) float32 points, most of them in range and in clusters."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.rand(max(count // 20, 1), 3, generator=generator)
    centers = centers * torch.tensor([110., 110., 9.]) - torch.tensor(
        [55., 55., 5.5])
    picked = torch.randint(0, len(centers), (count, ), generator=generator)
    spread = torch.randn(count, 3, generator=generator)
    rest = torch.rand(count, 2, generator=generator)
    return torch.cat((centers[picked] + spread, rest), 1)


def random_batch(samples: int, boxes: int, points: int, seed: int) -> dict:
    """What a data loader hands to ``data_preprocessor``."""
    from mmdet3d.structures import Det3DDataSample, LiDARInstance3DBoxes
    data_samples, clouds = [], []
    for i in range(samples):
        sample = Det3DDataSample(
            metainfo=dict(box_type_3d=LiDARInstance3DBoxes))
        sample.gt_instances_3d = random_instances(
            boxes, seed * 100 + i, hard=False)
        data_samples.append(sample)
        clouds.append(random_points(points, seed * 100 + i))
    return dict(inputs=dict(points=clouds), data_samples=data_samples)
