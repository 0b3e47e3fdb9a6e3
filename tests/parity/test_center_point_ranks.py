"""KF-G3: two ranks under DDP, one of them without any box."""

import os
import subprocess
import sys

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mmturbox.testing.center_point import (center_point_config,
                                           import_mmdet3d, random_batch)

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group('gloo', init_method='file://' + store, rank=rank,
                        world_size=2)
import_mmdet3d()
from mmdet3d.registry import MODELS

torch.manual_seed(0)
cfg = center_point_config().model
for part, kind in dict(
        data_preprocessor='Det3DDataPreprocessor',
        pts_voxel_encoder='PillarFeatureNet',
        pts_middle_encoder='PointPillarsScatter',
        pts_bbox_head='CenterHead').items():
    cfg[part].type = 'mmturbox.' + kind
model = MODELS.build(cfg).train()
# Neither flag that makes DDP look for unused parameters is set.
wrapped = DistributedDataParallel(model, broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    batch = random_batch(2, 0 if rank == 1 else 12, 500, seed=step)
    data = model.data_preprocessor(batch, True)
    losses = wrapped(**data, mode='loss')
    assert len(losses) == 12
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
both = [torch.empty_like(flat) for _ in range(2)]
dist.all_gather(both, flat)
assert torch.equal(*both) and torch.isfinite(flat).all()
dist.destroy_process_group()
print('equal')
"""


def test_a_rank_without_boxes_keeps_up(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, '-c', SCRIPT, str(rank),
             str(tmp_path / 'store')],
            env={**os.environ, 'OMP_NUM_THREADS': '1'},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=240)
            assert 'equal' in out, err
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
