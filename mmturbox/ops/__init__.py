"""The operators: public functions, their references, the mmcv provider."""

from ._library import MISSING, OPERATORS, load_native, native
from .ball_query import ball_query
from .batched_nms import batched_nms, batched_nms_padded, multiclass_nms
from .bev_pool import bev_cells, bev_pool, bev_pool_intervals
from .box_iou_rotated import box_iou_rotated
from .circle_nms import circle_nms
from .deform_conv import deform_conv2d
from .deformable_aggregation import (
    deformable_aggregation,
    deformable_aggregation_per_point,
    deformable_aggregation_split,
)
from .diff_iou_rotated import (
    diff_iou_rotated_2d,
    diff_iou_rotated_3d,
    sort_vertices,
)
from .draw_gaussians import draw_box_gaussians, draw_gaussians
from .focal_loss import (
    sigmoid_focal_loss,
    sigmoid_focal_loss_fused,
    softmax_focal_loss,
    softmax_focal_loss_fused,
)
from .furthest_point_sample import (
    furthest_point_sample,
    furthest_point_sample_with_dist,
)
from .gaussian_focal_loss import gaussian_focal_loss
from .gaussian_splat import (
    gaussian_precisions,
    gaussian_radii,
    gaussian_splat,
    gaussian_splat_dense,
    gaussian_splat_probabilistic,
)
from .geometry_kernel_attn import (
    geometry_kernel_attn,
    geometry_kernel_attn_ragged,
)
from .group_points import gather_points, group_points
from .indice_pairs import indice_pairs, tables_from_pairs
from .iou3d import boxes_overlap_bev, nms3d, nms3d_normal
from .knn import knn
from .ms_deform_attn import ms_deform_attn
from .ms_deform_attn_ragged import ms_deform_attn_ragged, pack_hits
from .nms import nms, nms_match, soft_nms
from .nms_rotated import nms_rotated
from .pillar_pool import pillar_grads, pillar_pool, pillar_stats
from .points_in_boxes import points_in_boxes_all, points_in_boxes_part
from .roi_align import roi_align
from .roiaware_pool3d import roiaware_pool3d
from .roipoint_pool3d import roipoint_pool3d
from .scatter_points import dynamic_scatter, voxel_reduce
from .small_matrix import (
    affine_inverse,
    apply_affine,
    rigid_inverse,
    small_inverse,
)
from .sparse_conv import sparse_conv
from .sparse_pool import sparse_max_pool, sparse_to_dense
from .sparse_rulebook import (
    SparseRulebook,
    SparseSpec,
    SparseTables,
    sparse_rulebook,
    sparse_rulebooks,
)
from .three_interpolate import three_interpolate
from .three_nn import three_nn
from .transform_points import transform_points
from .voxel_groups import VoxelGroups, point_groups, voxel_groups
from .voxel_mean import voxel_mean
from .voxelize import dynamic_voxelize, hard_voxelize, hard_voxelize_batch

load_native()

__all__ = [
    'MISSING', 'OPERATORS', 'SparseRulebook', 'SparseSpec', 'SparseTables',
    'VoxelGroups', 'affine_inverse', 'apply_affine', 'ball_query',
    'batched_nms', 'batched_nms_padded', 'bev_cells', 'bev_pool',
    'bev_pool_intervals', 'box_iou_rotated', 'boxes_overlap_bev', 'circle_nms',
    'deform_conv2d', 'deformable_aggregation',
    'deformable_aggregation_per_point', 'deformable_aggregation_split',
    'diff_iou_rotated_2d', 'diff_iou_rotated_3d', 'draw_box_gaussians',
    'draw_gaussians', 'dynamic_scatter', 'dynamic_voxelize',
    'furthest_point_sample', 'furthest_point_sample_with_dist',
    'gather_points', 'gaussian_focal_loss', 'gaussian_precisions',
    'gaussian_radii', 'gaussian_splat', 'gaussian_splat_dense',
    'gaussian_splat_probabilistic', 'geometry_kernel_attn',
    'geometry_kernel_attn_ragged', 'group_points', 'hard_voxelize',
    'hard_voxelize_batch', 'indice_pairs', 'knn', 'ms_deform_attn',
    'ms_deform_attn_ragged', 'multiclass_nms', 'native', 'nms', 'nms3d',
    'nms3d_normal', 'nms_match', 'nms_rotated', 'pack_hits', 'pillar_grads',
    'pillar_pool', 'pillar_stats', 'point_groups', 'points_in_boxes_all',
    'points_in_boxes_part', 'rigid_inverse', 'roi_align', 'roiaware_pool3d',
    'roipoint_pool3d', 'sigmoid_focal_loss', 'sigmoid_focal_loss_fused',
    'small_inverse', 'soft_nms', 'softmax_focal_loss',
    'softmax_focal_loss_fused', 'sort_vertices', 'sparse_conv',
    'sparse_max_pool', 'sparse_rulebook', 'sparse_rulebooks',
    'sparse_to_dense', 'tables_from_pairs', 'three_interpolate', 'three_nn',
    'transform_points', 'voxel_groups', 'voxel_mean', 'voxel_reduce'
]
