"""A model, a data set and a hook small enough to train in a second."""

import json
import os
from pathlib import Path

import torch
from mmengine.dist import get_backend, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.model import BaseModel, is_model_wrapper
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS


@MODELS.register_module()
class ToyModel(BaseModel):

    def __init__(self, data_preprocessor=None):
        super().__init__(data_preprocessor)
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, y, mode='tensor'):
        out = self.linear(x)
        if mode == 'loss':
            return dict(loss=(out - y).square().mean())
        return list(out)


@DATASETS.register_module()
class ToyDataset(torch.utils.data.Dataset):

    def __len__(self):
        return 16

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(4, generator=generator)
        return dict(x=x, y=x.sum()[None])


@METRICS.register_module()
class ToyMetric:

    dataset_meta = None

    def process(self, data_batch, data_samples):
        self.seen = getattr(self, 'seen', 0) + len(data_samples)

    def evaluate(self, size):
        return dict(seen=self.seen)


@HOOKS.register_module()
class ReportHook(Hook):
    """Leaves ``rank<N>.json`` in the work dir."""

    def before_train(self, runner):
        report = dict(
            rank=get_rank(),
            world=get_world_size(),
            backend=get_backend(),
            local_rank=os.environ['LOCAL_RANK'],
            nccl=os.environ.get('NCCL_P2P_DISABLE'),
            wrapped=is_model_wrapper(runner.model),
            runner=type(runner).__name__)
        path = Path(runner.work_dir, f'rank{report["rank"]}.json')
        path.write_text(json.dumps(report))
