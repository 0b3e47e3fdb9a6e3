"""The quick-start model learns one real nuScenes frame, stock and turbo.

A loss that falls and boxes that are found in real points show that readers,
operators, targets and decoding fit together, which synthetic data, made and
read by one project, cannot show.
"""

from pathlib import Path

import numpy as np
import pytest
from mmengine import Config

ROOT = Path(__file__).parents[2]
FRAME = ROOT.parent / 'shared' / 'data' / 'nuscenes_frame'
CONFIG = ROOT / ('configs/quickstart/'
                 'centerpoint-pillar_tiny_1xb1-80it_nuscenes-frame.py')
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FRAME.is_dir(), reason=f'no real nuScenes frame at {FRAME}')
]


def load(work_dir, name):
    cfg = Config.fromfile(CONFIG, import_custom_modules=False)
    cfg.train_dataloader.dataset.data_root = str(FRAME)
    cfg.work_dir = str(work_dir)
    # Global instances by name would mix the runs of one process.
    cfg.experiment_name = cfg.visualizer.name = name
    return cfg


def recall(model, cfg) -> float:
    """Share of in-range annotations with a box of their own class within
    2 m, each box counting once (best scores first)."""
    import torch
    from mmdet3d.registry import DATASETS
    from mmengine.dataset import pseudo_collate
    dataset = DATASETS.build(
        dict(
            cfg.train_dataloader.dataset,
            pipeline=cfg.test_pipeline,
            test_mode=True))
    truth = dataset.get_data_info(0)['eval_ann_info']
    centres = truth['gt_bboxes_3d'].gravity_center[:, :2].numpy()
    labels = truth['gt_labels_3d']
    keep = (np.abs(centres).max(1) < 51.2) & (labels >= 0)
    centres, labels = centres[keep], labels[keep]
    assert len(centres) == 50
    model.eval()
    with torch.no_grad():
        found = model.test_step(pseudo_collate([dataset[0]]))[0]
    found = found.pred_instances_3d
    boxes = found.bboxes_3d.gravity_center[:, :2].numpy()
    free = np.ones(len(centres), dtype=bool)
    for i in found.scores_3d.argsort(descending=True).tolist():
        gap = np.linalg.norm(centres - boxes[i], axis=1)
        gap[~free | (labels != int(found.labels_3d[i]))] = np.inf
        if gap.min() < 2.:
            free[gap.argmin()] = False
    return 1 - free.mean()


@pytest.mark.parametrize('kind', ['stock', 'turbo'])
def test_loss_falls_a_hundredfold_and_boxes_are_found(kind, tmp_path,
                                                      monkeypatch):
    from mmturbox.runner import TurboRunner
    monkeypatch.setenv('MMTURBOX', '0' if kind == 'stock' else '1')
    cfg = load(tmp_path, f'real_frame_{kind}')
    runner = TurboRunner.from_cfg(cfg)
    assert bool(runner.plan.applied) == (kind == 'turbo')
    assert recall(runner.model, cfg) <= .25
    runner.train()
    logged = [
        value['loss']
        for value in read_scalars(tmp_path) if 'loss' in value
    ]
    assert logged[0] > 100 * logged[-1]
    assert recall(runner.model, cfg) >= .8


def read_scalars(work_dir) -> list[dict]:
    import json
    path, = work_dir.glob('*/vis_data/scalars.json')
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_stock_and_turbo_agree_in_lockstep(tmp_path):
    from mmturbox.analysis.verify import verify
    from mmturbox.system import compat
    compat.install()
    verdict = verify(
        load(tmp_path, 'real_frame_verify'), str(tmp_path), 4, print)
    assert verdict.passes
    assert verdict.agrees, verdict.checks
