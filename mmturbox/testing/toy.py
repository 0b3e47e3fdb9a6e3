"""A detector that trains in milliseconds, and its data.

It has what the tools look at in a real one: a data preprocessor, BatchNorm
buffers, target building in a Python loop that reads boxes one by one, several
losses, random augmentation, a training loop with hooks, and predictions.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.utils.data import Dataset

from mmturbox.registry import DATASETS, METRICS, MODELS

SIZE = 16


@DATASETS.register_module()
class ToyBoxes(Dataset):
    """Images with bright dots; the task is to find the dots.

    Args:
        num_samples: length.
        num_boxes: dots in each image.
        delay: seconds that loading one sample takes besides.
        augment: flip at random, by numpy's global random state.
    """

    metainfo = dict(classes=('dot', ))

    def __init__(self,
                 num_samples: int = 8,
                 num_boxes: int = 3,
                 delay: float = 0.,
                 augment: bool = True):
        self.num_samples = num_samples
        self.num_boxes = num_boxes
        self.delay = delay
        self.augment = augment

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> dict:
        """``inputs`` (3, 16, 16) float32; ``bboxes`` (num_boxes, 2) of x, y
        in pixels as float32."""
        time.sleep(self.delay)
        rng = np.random.default_rng(index)
        boxes = rng.integers(0, SIZE, (self.num_boxes, 2))
        image = rng.normal(0, .1, (3, SIZE, SIZE)).astype(np.float32)
        image[:, boxes[:, 1], boxes[:, 0]] += 1
        if self.augment and np.random.rand() < .5:
            image = image[:, :, ::-1].copy()
            boxes[:, 0] = SIZE - 1 - boxes[:, 0]
        sample = BaseDataElement(metainfo=dict(sample_idx=index))
        sample.bboxes = torch.from_numpy(boxes.astype(np.float32))
        return dict(inputs=torch.from_numpy(image), data_samples=sample)


@MODELS.register_module()
class ToyDetector(BaseModel):
    """One convolution block and a heat-map head with an offset branch."""

    def __init__(self,
                 channels: int = 8,
                 loss_weight: float = 1.,
                 data_preprocessor: Any = None):
        super().__init__(data_preprocessor=data_preprocessor)
        self.loss_weight = loss_weight
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.heat = nn.Conv2d(channels, 1, 1)
        self.offset = nn.Conv2d(channels, 2, 1)

    def targets(self, heat: Tensor,
                data_samples: Sequence[BaseDataElement]) -> Tensor:
        """(B, 1, 16, 16) heat map with a one at each box, box by box."""
        target = torch.zeros_like(heat)
        for index, sample in enumerate(data_samples):
            for x, y in sample.bboxes:
                target[index, 0, int(y), int(x)] = 1
        return target

    def loss(self, inputs: Tensor,
             data_samples: Sequence[BaseDataElement]) -> dict[str, Tensor]:
        feats = F.relu(self.norm(self.conv(inputs)))
        heat = self.heat(feats)
        target = self.targets(heat, data_samples)
        return dict(
            loss_heat=F.binary_cross_entropy_with_logits(heat, target) *
            self.loss_weight,
            loss_offset=(self.offset(feats).abs() * target).mean())

    def forward(self,
                inputs: list[Tensor],
                data_samples: list | None = None,
                mode: str = 'tensor') -> Any:
        images = torch.stack(inputs)
        if mode == 'loss':
            return self.loss(images, data_samples)
        scores = self.heat(F.relu(self.norm(self.conv(images)))).sigmoid()
        if mode == 'tensor':
            return scores
        for sample, score in zip(data_samples, scores, strict=True):
            best, place = score.flatten().topk(3)
            sample.pred = BaseDataElement(scores=best, places=place)
        return data_samples


@METRICS.register_module()
class ToyScore(BaseMetric):
    """Mean of the best scores."""

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        self.results += [float(s['pred']['scores'].max())
                         for s in data_samples]

    def compute_metrics(self, results: list[float]) -> dict[str, float]:
        return dict(score=sum(results) / len(results))


def toy_config(work_dir: str, **options: Any) -> Config:
    """A full config of the toy detector; ``options`` are merged in."""
    loader = dict(
        batch_size=2,
        num_workers=0,
        dataset=dict(type='mmturbox.ToyBoxes'),
        sampler=dict(type='DefaultSampler', shuffle=True))
    cfg = Config(
        dict(
            default_scope='mmengine',
            work_dir=work_dir,
            model=dict(type='mmturbox.ToyDetector'),
            train_dataloader=loader,
            test_dataloader=dict(
                batch_size=1,
                num_workers=0,
                dataset=dict(type='mmturbox.ToyBoxes', augment=False),
                sampler=dict(type='DefaultSampler', shuffle=False)),
            train_cfg=dict(by_epoch=True, max_epochs=50),
            test_cfg=dict(),
            test_evaluator=dict(type='mmturbox.ToyScore'),
            optim_wrapper=dict(
                optimizer=dict(type='AdamW', lr=1e-3, weight_decay=.01),
                clip_grad=dict(max_norm=1., norm_type=2)),
            param_scheduler=[
                dict(type='LinearLR', start_factor=.1, end=20, by_epoch=False)
            ],
            default_hooks=dict(
                logger=dict(type='LoggerHook', interval=50),
                checkpoint=dict(type='CheckpointHook', interval=1)),
            log_level='WARNING'))
    cfg.merge_from_dict(options)
    return cfg


def write_toy_config(path: str, work_dir: str, **options: Any) -> str:
    """The same as a config file that switches mmturbox on."""
    cfg = toy_config(work_dir, **options)
    cfg.custom_imports = dict(
        imports=['mmturbox.testing.toy', 'mmturbox.enable'])
    cfg.dump(path)
    return path
