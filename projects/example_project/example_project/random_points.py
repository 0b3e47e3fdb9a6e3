"""Data that needs no download."""

import torch
from mmengine.registry import DATASETS
from torch.utils.data import Dataset


@DATASETS.register_module()
class RandomPoints(Dataset):
    """Clouds around random centres; sample ``i`` is always the same.

    Args:
        length: number of clouds.
        num_points: points a cloud.
    """

    def __init__(self, length: int = 64, num_points: int = 32) -> None:
        self.length = length
        self.num_points = num_points

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict:
        random = torch.Generator().manual_seed(index)
        centre = torch.randn(3, generator=random)
        noise = torch.randn(self.num_points, 3, generator=random)
        return dict(points=centre + .1 * noise, centre=centre)
