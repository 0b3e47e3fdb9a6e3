"""A small monocular detector learns one scene by heart, from images alone."""

import importlib.util
from pathlib import Path

import pytest
from mmengine import Config

from mmturbox.datasets import synthetic
from mmturbox.datasets.synthetic.scene import Contents

MAP = 'NuScenes metric/pred_instances_3d_NuScenes/mAP'
CHANNELS, STEPS = 32, 150


@pytest.fixture(scope='module')
def short_root(tmp_path_factory) -> Path:
    """Two key frames a scene: twelve images to learn."""
    root = tmp_path_factory.mktemp('overfit') / 'set'
    assert synthetic.create_synthetic_nuscenes(
        root, 2, 2, contents=Contents((400, 225)))
    return root


@pytest.fixture
def no_gpu_needed(monkeypatch):
    """mmdet3d's metric moves boxes of cameras to a GPU to merge them."""
    import torch
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.Tensor, 'cuda', lambda self: self)


def shrink(model) -> None:
    """mmdet3d's FCOS3D with ResNet-18 of a quarter of the width, for images
    of a quarter of the size."""
    model.data_preprocessor.std = [58., 57., 57.]
    model.backbone = dict(
        type='mmdet.ResNet',
        depth=18,
        base_channels=16,
        out_indices=(1, 2, 3),
        norm_eval=False)
    model.neck = dict(
        type='mmdet.FPN',
        in_channels=[32, 64, 128],
        out_channels=CHANNELS,
        num_outs=3)
    branch = (CHANNELS, )
    model.bbox_head.update(
        in_channels=CHANNELS,
        feat_channels=CHANNELS,
        stacked_convs=1,
        strides=[8, 16, 32],
        regress_ranges=((-1, 48), (48, 96), (96, 1e8)),
        norm_cfg=dict(type='GN', num_groups=8, requires_grad=True),
        cls_branch=branch,
        reg_branch=(branch, branch, branch, branch, ()),
        dir_branch=branch,
        attr_branch=branch,
        centerness_branch=branch,
        dcn_on_last_conv=False)
    # Mean and spread of the depths, metres.
    model.bbox_head.bbox_coder.base_depths = ((20., 12.), )
    # Depth counts as much as place in the image.
    model.train_cfg.code_weight = [1.] * 7 + [.05] * 2


def load(root, work_dir) -> Config:
    mmdet3d = importlib.util.find_spec('mmdet3d').submodule_search_locations
    cfg = Config.fromfile(
        f'{mmdet3d[0]}/.mim/configs/fcos3d/'
        'fcos3d_r101-caffe-dcn_fpn_head-gn_8xb2-1x_nus-mono3d.py')
    shrink(cfg.model)
    images = [
        dict(type='LoadImageFromFileMono3D'),
        dict(type='mmdet.Resize', scale_factor=1.)
    ]
    loader = cfg.train_dataloader
    loader.update(
        batch_size=6,
        num_workers=0,
        persistent_workers=False,
        sampler=dict(type='InfiniteSampler', shuffle=True))
    # The official evaluation is of mini_val: that is the scene to learn.
    loader.dataset.update(
        data_root=str(root),
        ann_file='nuscenes_infos_val.pkl',
        metainfo=dict(classes=cfg.class_names, version='v1.0-mini'),
        pipeline=[*images, cfg.train_pipeline[1], cfg.train_pipeline[-1]])
    cfg.test_dataloader.update(num_workers=0, persistent_workers=False)
    cfg.test_dataloader.dataset = dict(
        loader.dataset,
        pipeline=[*images, dict(type='Pack3DDetInputs', keys=['img'])],
        test_mode=True)
    cfg.test_evaluator = dict(
        type='NuScenesMetric',
        data_root=str(root),
        ann_file=str(root / 'nuscenes_infos_val.pkl'))
    cfg.val_dataloader = cfg.val_cfg = cfg.val_evaluator = None
    cfg.train_cfg = dict(
        type='IterBasedTrainLoop', max_iters=STEPS, val_interval=10**6)
    cfg.optim_wrapper = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.),
        clip_grad=dict(max_norm=35.))
    cfg.param_scheduler = dict(
        type='CosineAnnealingLR', T_max=STEPS, eta_min=4e-5, by_epoch=False)
    cfg.default_hooks.logger.interval = 10
    cfg.default_hooks.checkpoint = dict(
        type='CheckpointHook', by_epoch=False, interval=10**6)
    cfg.log_processor = dict(by_epoch=False, window_size=10)
    cfg.work_dir, cfg.randomness = str(work_dir), dict(seed=0)
    cfg.experiment_name = cfg.visualizer.name = 'overfit_camera'
    return cfg


@pytest.mark.slow
def test_camera_model_overfits_one_scene(short_root, tmp_path, train,
                                         no_gpu_needed):
    losses, before, after = train(load(short_root, tmp_path))
    assert before[MAP] < .1
    # Centerness cannot fall below .55: its targets are no zeros and ones.
    assert losses[0] > 4 * losses[-1]
    assert after[MAP] > .3
