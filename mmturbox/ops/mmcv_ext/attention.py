"""mmcv's calls for deformable attention."""

from torch import Tensor

from ..ms_deform_attn import ms_deform_attn
from ..ms_deform_attn import (
    ms_deform_attn_backward as ms_deform_attn_backward_op,
)
from ._provided import provides


@provides
def ms_deform_attn_forward(value: Tensor, value_spatial_shapes: Tensor,
                           value_level_start_index: Tensor,
                           sampling_locations: Tensor,
                           attention_weights: Tensor,
                           im2col_step: int) -> Tensor:
    """Takes every batch size, whatever ``im2col_step`` is."""
    return ms_deform_attn(value, value_spatial_shapes.long(),
                          value_level_start_index.long(), sampling_locations,
                          attention_weights)


@provides
def ms_deform_attn_backward(value: Tensor, value_spatial_shapes: Tensor,
                            value_level_start_index: Tensor,
                            sampling_locations: Tensor,
                            attention_weights: Tensor, grad_output: Tensor,
                            grad_value: Tensor, grad_sampling_loc: Tensor,
                            grad_attn_weight: Tensor,
                            im2col_step: int) -> None:
    """Takes every batch size, whatever ``im2col_step`` is."""
    found = ms_deform_attn_backward_op(
        grad_output.flatten(0, 1), value, value_spatial_shapes.long(),
        value_level_start_index.long(), sampling_locations.flatten(0, 1),
        attention_weights.flatten(0, 1), None, None, False)
    for buffer, result in zip(
        (grad_value, grad_sampling_loc, grad_attn_weight), found,
            strict=True):
        buffer.copy_(result.view_as(buffer))
