"""The operators: public functions, their references, the mmcv provider."""

from ._library import MISSING, OPERATORS, load_native, native
from .box_iou_rotated import box_iou_rotated
from .draw_gaussians import draw_gaussians
from .focal_loss import sigmoid_focal_loss, softmax_focal_loss
from .iou3d import boxes_overlap_bev, nms3d, nms3d_normal
from .nms import nms, nms_match, soft_nms
from .nms_rotated import nms_rotated
from .pillar_pool import pillar_grads, pillar_pool, pillar_stats
from .points_in_boxes import points_in_boxes_all, points_in_boxes_part
from .roi_align import roi_align
from .scatter_points import dynamic_scatter
from .voxelize import dynamic_voxelize, hard_voxelize, hard_voxelize_batch

load_native()

__all__ = [
    'MISSING', 'OPERATORS', 'box_iou_rotated', 'boxes_overlap_bev',
    'draw_gaussians', 'dynamic_scatter', 'dynamic_voxelize',
    'hard_voxelize', 'hard_voxelize_batch', 'native', 'nms', 'nms3d',
    'nms3d_normal', 'nms_match', 'nms_rotated', 'pillar_grads',
    'pillar_pool', 'pillar_stats', 'points_in_boxes_all',
    'points_in_boxes_part', 'roi_align', 'sigmoid_focal_loss', 'soft_nms',
    'softmax_focal_loss'
]
