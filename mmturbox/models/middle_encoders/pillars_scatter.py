"""Pillars to the bird's eye view without a loop over samples."""

from mmdet3d.models.middle_encoders import (
    PointPillarsScatter as StockScatter,
)
from torch import Tensor

from mmturbox.registry import MODELS

_ATTRIBUTE = '_mmturbox_batch_size'


def note_batch_size(coors: Tensor, batch_size: int) -> None:
    """Write the number of samples onto ``coors``, to spare a read."""
    setattr(coors, _ATTRIBUTE, batch_size)


@MODELS.register_module()
class PointPillarsScatter(StockScatter):
    """mmdet3d's PointPillarsScatter: same arguments, equal bit for bit.

    Detectors give ``batch_size`` as a tensor made of the last row of
    ``coors``. It is read only where ``coors`` do not come from
    :class:`mmturbox.Det3DDataPreprocessor`.
    """

    def forward_batch(self, voxel_features: Tensor, coors: Tensor,
                      batch_size: int | Tensor) -> Tensor:
        """Put each pillar into its cell; cells without one are zero.

        Args:
            voxel_features: (M, C).
            coors: (M, 4) integers: sample, z, y, x; no two rows alike.
            batch_size: B.

        Returns:
            (B, C, ny, nx), contiguous.
        """
        batch_size = int(getattr(coors, _ATTRIBUTE, batch_size))
        canvas = voxel_features.new_zeros(
            batch_size, self.in_channels, self.ny * self.nx)
        sample, _, y, x = coors.long().unbind(1)
        canvas[sample, :, y * self.nx + x] = voxel_features
        return canvas.view(batch_size, self.in_channels, self.ny, self.nx)
