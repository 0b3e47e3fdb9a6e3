"""Twin of mmcv's multi-scale deformable attention."""

import torch
from mmcv.ops import MultiScaleDeformableAttention as StockAttention
from mmengine.utils import deprecated_api_warning
from torch import Tensor

from mmturbox.ops import ms_deform_attn
from mmturbox.registry import MODELS


@MODELS.register_module()
class MultiScaleDeformableAttention(StockAttention):
    """mmcv's attention (arXiv:2010.04159) over the operator of mmturbox.

    Parameters, initialisation and state_dict are inherited. The softmax is
    the operator's, any batch size works whatever ``im2col_step`` says, and
    nothing is read back from a GPU.

    Args:
        Those of mmcv's class.
    """

    @deprecated_api_warning({'residual': 'identity'},
                            cls_name='MultiScaleDeformableAttention')
    def forward(self,
                query: Tensor,
                key: Tensor | None = None,
                value: Tensor | None = None,
                identity: Tensor | None = None,
                query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None,
                reference_points: Tensor | None = None,
                spatial_shapes: Tensor | None = None,
                level_start_index: Tensor | None = None,
                **kwargs) -> Tensor:
        """Attend from each query to samples of ``value`` around its points.

        Args:
            query: (Q, B, C), or (B, Q, C) with ``batch_first``.
            key: not used.
            value: (S, B, C) or (B, S, C); the query by default.
            identity: added to the result; the query by default.
            query_pos: added to the query first.
            key_padding_mask: (B, S) bool; where True the value is zero.
            reference_points: (B, Q, L, 2) x, y, with 0 and 1 at the borders
                of the maps, or (B, Q, L, 4) with width and height.
            spatial_shapes: (L, 2) int64 height and width of each level.
            level_start_index: (L,) int64 first cell of each level.

        Returns:
            As ``query``.

        Raises:
            ValueError: on reference points of another width, and on levels
                that do not add up to S where they are on the CPU.
        """
        value = query if value is None else value
        identity = query if identity is None else identity
        if query_pos is not None:
            query = query + query_pos
        if not self.batch_first:
            query, value = query.transpose(0, 1), value.transpose(0, 1)
        sizes = spatial_shapes.prod(1)
        if sizes.device.type == 'cpu' and not torch.compiler.is_compiling(
        ) and int(sizes.sum()) != value.shape[1]:
            raise ValueError(f'levels of {sizes.tolist()} cells do not make '
                             f'up {value.shape[1]} values')
        if level_start_index is None:
            level_start_index = sizes.cumsum(0) - sizes
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        samples = (self.num_heads, self.num_levels, self.num_points)
        out = ms_deform_attn(
            value.unflatten(2, (self.num_heads, -1)),
            spatial_shapes.long(),
            level_start_index.long(),
            self._locations(
                self.sampling_offsets(query).unflatten(2, (*samples, 2)),
                reference_points, spatial_shapes),
            self.attention_weights(query).unflatten(2, samples),
            softmax=True)
        out = self.output_proj(out)
        if not self.batch_first:
            out = out.transpose(0, 1)
        return self.dropout(out) + identity

    def _locations(self, offsets: Tensor, points: Tensor,
                   shapes: Tensor) -> Tensor:
        """(B, Q, H, L, P, 2) of offsets from (B, Q, L, 2 or 4) points."""
        points = points[:, :, None, :, None]
        if points.shape[-1] == 2:
            return points + offsets / shapes.flip(1)[:, None]
        if points.shape[-1] == 4:
            return (points[..., :2] +
                    offsets / self.num_points * points[..., 2:] * 0.5)
        raise ValueError('reference_points must have 2 or 4 columns, got '
                         f'{points.shape[-1]}')
