"""mmcv's calls for point clouds: voxels, scatter, points in boxes."""

from torch import Tensor

from .. import points_in_boxes as boxes_op
from .. import scatter_points, voxelize
from ._provided import provides


def _three(ndim: int) -> None:
    if ndim != 3:
        raise ValueError(f'voxels must have 3 dimensions, got NDim={ndim}')


@provides
def hard_voxelize_forward(points: Tensor,
                          voxel_size: Tensor,
                          coors_range: Tensor,
                          voxels: Tensor,
                          coors: Tensor,
                          num_points_per_voxel: Tensor,
                          voxel_num: Tensor,
                          max_points: int,
                          max_voxels: int,
                          NDim: int = 3,
                          deterministic: bool = True) -> None:
    """Always deterministic, whatever ``deterministic`` asks for."""
    _three(NDim)
    found = voxelize.hard_voxelize(points, voxel_size.tolist(),
                                   coors_range.tolist(), max_points,
                                   max_voxels)
    num_voxels = len(found[0])
    for buffer, result in zip((voxels, coors, num_points_per_voxel), found,
                              strict=True):
        buffer[:num_voxels] = result
    voxel_num.fill_(num_voxels)


@provides
def dynamic_voxelize_forward(points: Tensor,
                             voxel_size: Tensor,
                             coors_range: Tensor,
                             coors: Tensor,
                             NDim: int = 3) -> None:
    _three(NDim)
    coors.copy_(
        voxelize.dynamic_voxelize(points, voxel_size.tolist(),
                                  coors_range.tolist()))


@provides
def dynamic_point_to_voxel_forward(feats: Tensor, coors: Tensor,
                                   reduce_type: str) -> list[Tensor]:
    return list(scatter_points.dynamic_scatter(feats, coors, reduce_type))


@provides
def dynamic_point_to_voxel_backward(grad_feats: Tensor,
                                    grad_reduced_feats: Tensor, feats: Tensor,
                                    reduced_feats: Tensor, coors_idx: Tensor,
                                    reduce_count: Tensor,
                                    reduce_type: str) -> None:
    grad_feats.copy_(
        scatter_points.dynamic_scatter_backward(grad_reduced_feats, feats,
                                                reduced_feats, coors_idx,
                                                reduce_count, reduce_type))


@provides
def points_in_boxes_part_forward(boxes_tensor: Tensor, pts_tensor: Tensor,
                                 box_idx_of_points_tensor: Tensor) -> None:
    box_idx_of_points_tensor.copy_(
        boxes_op.points_in_boxes_part(pts_tensor, boxes_tensor))


@provides
def points_in_boxes_all_forward(boxes_tensor: Tensor, pts_tensor: Tensor,
                                box_idx_of_points_tensor: Tensor) -> None:
    box_idx_of_points_tensor.copy_(
        boxes_op.points_in_boxes_all(pts_tensor, boxes_tensor))


@provides
def points_in_boxes_cpu_forward(boxes_tensor: Tensor, pts_tensor: Tensor,
                                pts_indices_tensor: Tensor) -> None:
    """One sample; the result is (boxes, points)."""
    inside = boxes_op.points_in_boxes_all(pts_tensor[None],
                                          boxes_tensor[None])[0]
    pts_indices_tensor.copy_(inside.t())
