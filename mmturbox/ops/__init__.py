"""The operators: public functions, their references, the mmcv provider."""

from ._library import MISSING, OPERATORS, load_native, native
from .box_iou_rotated import box_iou_rotated
from .draw_gaussians import draw_gaussians
from .focal_loss import (
    sigmoid_focal_loss,
    sigmoid_focal_loss_fused,
    softmax_focal_loss,
    softmax_focal_loss_fused,
)
from .gaussian_focal_loss import gaussian_focal_loss
from .indice_pairs import indice_pairs, tables_from_pairs
from .iou3d import boxes_overlap_bev, nms3d, nms3d_normal
from .nms import nms, nms_match, soft_nms
from .nms_rotated import nms_rotated
from .pillar_pool import pillar_grads, pillar_pool, pillar_stats
from .points_in_boxes import points_in_boxes_all, points_in_boxes_part
from .roi_align import roi_align
from .scatter_points import dynamic_scatter
from .sparse_conv import sparse_conv
from .sparse_pool import sparse_max_pool, sparse_to_dense
from .sparse_rulebook import (
    SparseRulebook,
    SparseSpec,
    SparseTables,
    sparse_rulebook,
    sparse_rulebooks,
)
from .voxelize import dynamic_voxelize, hard_voxelize, hard_voxelize_batch

load_native()

__all__ = [
    'MISSING', 'OPERATORS', 'SparseRulebook', 'SparseSpec', 'SparseTables',
    'box_iou_rotated', 'boxes_overlap_bev', 'draw_gaussians',
    'dynamic_scatter', 'dynamic_voxelize', 'hard_voxelize',
    'hard_voxelize_batch', 'indice_pairs', 'native', 'nms', 'nms3d',
    'nms3d_normal', 'nms_match', 'nms_rotated', 'pillar_grads',
    'pillar_pool', 'pillar_stats', 'points_in_boxes_all',
    'points_in_boxes_part', 'roi_align', 'sigmoid_focal_loss', 'soft_nms',
    'softmax_focal_loss', 'sparse_conv', 'sparse_max_pool',
    'sparse_rulebook', 'sparse_rulebooks', 'sparse_to_dense',
    'tables_from_pairs'
]
