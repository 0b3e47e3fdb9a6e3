"""The quick-start LiDAR model learns one scene by heart."""

from pathlib import Path

import pytest
from mmengine import Config

CONFIGS = Path(__file__).parents[2] / 'configs' / 'quickstart'
MAP = 'NuScenes metric/pred_instances_3d_NuScenes/mAP'
STEPS = 60


def load(root, work_dir) -> Config:
    """Of the model for one frame; no augmentation, no sweeps."""
    cfg = Config.fromfile(
        CONFIGS / 'centerpoint-pillar_tiny_1xb1-80it_nuscenes-frame.py',
        import_custom_modules=False)
    loader = cfg.train_dataloader
    loader.batch_size = 4
    # The official evaluation is of mini_val: that is the scene to learn.
    loader.dataset.update(
        data_root=str(root),
        ann_file='nuscenes_infos_val.pkl',
        data_prefix=dict(
            pts='samples/LIDAR_TOP', img='', sweeps='sweeps/LIDAR_TOP'))
    cfg.train_cfg.max_iters = STEPS
    cfg.test_dataloader = dict(
        batch_size=1,
        num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False),
        dataset=dict(
            loader.dataset, pipeline=cfg.test_pipeline, test_mode=True))
    cfg.test_evaluator = dict(
        type='NuScenesMetric',
        data_root=str(root),
        ann_file=str(root / 'nuscenes_infos_val.pkl'))
    cfg.test_cfg = dict()
    cfg.default_hooks.checkpoint.interval = 10**6
    cfg.work_dir = str(work_dir)
    cfg.experiment_name = cfg.visualizer.name = 'overfit_lidar'
    return cfg


@pytest.mark.slow
def test_lidar_model_overfits_one_scene(official_root, tmp_path, train):
    losses, before, after = train(load(official_root, tmp_path))
    assert before[MAP] < .05
    assert losses[0] > 100 * losses[-1]
    assert after[MAP] > .5
