"""The model, written plainly; acceleration is not its business."""

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor, nn


@MODELS.register_module()
class PointRegressor(BaseModel):
    """Guess the centre of a point cloud from its points.

    Args:
        channels: width of the hidden layer.
        data_preprocessor: as of MMEngine's BaseModel.
    """

    def __init__(self,
                 channels: int = 16,
                 data_preprocessor: dict | None = None) -> None:
        super().__init__(data_preprocessor)
        self.encode = nn.Sequential(nn.Linear(3, channels), nn.ReLU())
        self.decode = nn.Linear(channels, 3)

    def forward(self, points: Tensor, centre: Tensor,
                mode: str = 'tensor') -> dict | list | Tensor:
        """
        Args:
            points: (B, N, 3) float32, metres, lidar frame.
            centre: (B, 3) float32, metres, lidar frame.
            mode: ``'loss'``, ``'predict'`` or ``'tensor'``.

        Returns:
            The losses, a list of B centres of shape (3,), or (B, 3).
        """
        guess = self.decode(self.encode(points).mean(1))
        if mode == 'loss':
            return dict(loss=(guess - centre).square().mean())
        return list(guess) if mode == 'predict' else guess

    def init_weights(self) -> None:
        for layer in (self.encode[0], self.decode):
            nn.init.xavier_uniform_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
