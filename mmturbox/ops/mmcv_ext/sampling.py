"""mmcv's calls for sampling, grouping and pooling points.

The sizes that mmcv hands over (b, n, m, ...) are those of the tensors and
not looked at.
"""

import torch
from torch import Tensor

from ..ball_query import ball_query
from ..furthest_point_sample import (
    furthest_point_sample,
    furthest_point_sample_with_dist,
)
from ..group_points import gather_points, group_points
from ..group_points import gather_points_backward as gather_backward
from ..group_points import group_points_stacked_backward as stacked_backward
from ..knn import k_nearest
from ..roiaware_pool3d import (
    counted_members,
    roiaware_assign,
    roiaware_pool,
    roiaware_pool_backward,
)
from ..roipoint_pool3d import roipoint_pool3d
from ..three_interpolate import three_interpolate
from ..three_interpolate import three_interpolate_backward as spread_backward
from ._provided import provides


@provides
def furthest_point_sampling_forward(points_tensor: Tensor,
                                    temp_tensor: Tensor, idx_tensor: Tensor,
                                    b: int, n: int, m: int) -> None:
    """``temp_tensor`` is room for distances that we do not need."""
    idx_tensor.copy_(
        furthest_point_sample(points_tensor, idx_tensor.shape[1]))


@provides
def furthest_point_sampling_with_dist_forward(points_tensor: Tensor,
                                              temp_tensor: Tensor,
                                              idx_tensor: Tensor, b: int,
                                              n: int, m: int) -> None:
    """``temp_tensor`` is room for distances that we do not need."""
    idx_tensor.copy_(
        furthest_point_sample_with_dist(points_tensor, idx_tensor.shape[1]))


@provides
def ball_query_forward(new_xyz_tensor: Tensor, xyz_tensor: Tensor,
                       idx_tensor: Tensor, b: int, n: int, m: int,
                       min_radius: float, max_radius: float,
                       nsample: int) -> None:
    idx_tensor.copy_(
        ball_query(min_radius, max_radius, nsample, xyz_tensor,
                   new_xyz_tensor))


@provides
def stack_ball_query_forward(new_xyz_tensor: Tensor,
                             new_xyz_batch_cnt: Tensor, xyz_tensor: Tensor,
                             xyz_batch_cnt: Tensor, idx_tensor: Tensor,
                             max_radius: float, nsample: int) -> None:
    idx_tensor.copy_(
        ball_query(0.0, max_radius, nsample, xyz_tensor, new_xyz_tensor,
                   xyz_batch_cnt, new_xyz_batch_cnt))


@provides
def knn_forward(xyz_tensor: Tensor, new_xyz_tensor: Tensor,
                idx_tensor: Tensor, dist2_tensor: Tensor, b: int, n: int,
                m: int, nsample: int) -> None:
    idx, dist2 = k_nearest(xyz_tensor, new_xyz_tensor, nsample)
    idx_tensor.copy_(idx)
    dist2_tensor.copy_(dist2)


@provides
def three_nn_forward(unknown_tensor: Tensor, known_tensor: Tensor,
                     dist2_tensor: Tensor, idx_tensor: Tensor, b: int, n: int,
                     m: int) -> None:
    knn_forward(known_tensor, unknown_tensor, idx_tensor, dist2_tensor, b, m,
                n, 3)


@provides
def gather_points_forward(points_tensor: Tensor, idx_tensor: Tensor,
                          out_tensor: Tensor, b: int, c: int, n: int,
                          npoints: int) -> None:
    out_tensor.copy_(gather_points(points_tensor, idx_tensor))


@provides
def gather_points_backward(grad_out_tensor: Tensor, idx_tensor: Tensor,
                           grad_points_tensor: Tensor, b: int, c: int, n: int,
                           npoints: int) -> None:
    grad_points_tensor += gather_backward(grad_out_tensor, idx_tensor,
                                          grad_points_tensor.shape[2])


@provides
def group_points_forward(points_tensor: Tensor, idx_tensor: Tensor,
                         out_tensor: Tensor, b: int, c: int, n: int,
                         npoints: int, nsample: int) -> None:
    out_tensor.copy_(group_points(points_tensor, idx_tensor))


@provides
def group_points_backward(grad_out_tensor: Tensor, idx_tensor: Tensor,
                          grad_points_tensor: Tensor, b: int, c: int, n: int,
                          npoints: int, nsample: int) -> None:
    grad_points_tensor += gather_backward(
        grad_out_tensor.flatten(2), idx_tensor.flatten(1),
        grad_points_tensor.shape[2])


@provides
def stack_group_points_forward(features_tensor: Tensor,
                               features_batch_cnt_tensor: Tensor,
                               idx_tensor: Tensor,
                               idx_batch_cnt_tensor: Tensor,
                               out_tensor: Tensor, b: int, c: int, m: int,
                               nsample: int) -> None:
    out_tensor.copy_(
        group_points(features_tensor, idx_tensor, features_batch_cnt_tensor,
                     idx_batch_cnt_tensor))


@provides
def stack_group_points_backward(grad_out_tensor: Tensor, idx_tensor: Tensor,
                                idx_batch_cnt_tensor: Tensor,
                                features_batch_cnt_tensor: Tensor,
                                grad_features_tensor: Tensor, b: int, c: int,
                                m: int, n: int, nsample: int) -> None:
    grad_features_tensor += stacked_backward(
        grad_out_tensor, features_batch_cnt_tensor, idx_tensor,
        idx_batch_cnt_tensor, len(grad_features_tensor))


@provides
def three_interpolate_forward(points_tensor: Tensor, idx_tensor: Tensor,
                              weight_tensor: Tensor, out_tensor: Tensor,
                              b: int, c: int, m: int, n: int) -> None:
    out_tensor.copy_(
        three_interpolate(points_tensor, idx_tensor, weight_tensor))


@provides
def three_interpolate_backward(grad_out_tensor: Tensor, idx_tensor: Tensor,
                               weight_tensor: Tensor,
                               grad_points_tensor: Tensor, b: int, c: int,
                               n: int, m: int) -> None:
    grad_points_tensor += spread_backward(
        grad_out_tensor, idx_tensor, weight_tensor,
        grad_points_tensor.shape[2])


@provides
def roiaware_pool3d_forward(rois: Tensor, pts: Tensor, pts_feature: Tensor,
                            argmax: Tensor, pts_idx_of_voxels: Tensor,
                            pooled_features: Tensor,
                            pool_method: int) -> None:
    """``pts_idx_of_voxels`` gets the number of points of each cell in its
    first place, then their indices."""
    *cells, room = pts_idx_of_voxels.shape
    starts, members = roiaware_assign(rois, pts, *cells[1:])
    pooled, best = roiaware_pool(
        pts_feature, starts, members, room - 1, pool_method == 0)
    pooled_features.copy_(pooled.view_as(pooled_features))
    if pool_method == 0:
        argmax.copy_(best.view_as(argmax))
    cell, rank, member, sizes = counted_members(starts, members, room - 1)
    lists = pts_idx_of_voxels.view(-1, room)
    lists[:, 0] = sizes
    lists[cell, rank + 1] = member.int()


@provides
def roiaware_pool3d_backward(pts_idx_of_voxels: Tensor, argmax: Tensor,
                             grad_out: Tensor, grad_in: Tensor,
                             pool_method: int) -> None:
    lists = pts_idx_of_voxels.flatten(0, -2)
    sizes = lists[:, 0].long()
    room = lists.shape[1] - 1
    members = lists[:, 1:][torch.arange(room, device=lists.device) <
                           sizes[:, None]]
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    grad_in += roiaware_pool_backward(
        grad_out.flatten(0, -2), starts, members, argmax.flatten(0, -2),
        len(grad_in), room, pool_method == 0)


@provides
def roipoint_pool3d_forward(xyz: Tensor, boxes3d: Tensor, pts_feature: Tensor,
                            pooled_features: Tensor,
                            pooled_empty_flag: Tensor) -> None:
    pooled, empty = roipoint_pool3d(
        xyz, pts_feature, boxes3d, pooled_features.shape[2])
    pooled_features.copy_(pooled)
    pooled_empty_flag.copy_(empty)


def _assign_scores(points: Tensor, centers: Tensor, scores: Tensor,
                   knn_idx: Tensor) -> Tensor:
    """Scores times neighbour minus centre, summed over the weight bank."""
    batch = torch.arange(len(points), device=points.device)[:, None, None]
    inside = (knn_idx >= 0) & (knn_idx < points.shape[1])
    index = torch.where(inside, knn_idx, 0)
    delta = points[batch, index] - centers[batch, index[..., :1]]
    scores = scores * inside[..., None]
    return torch.einsum('bnkm,bnkmo->bonk', scores, delta)


@provides
def assign_score_withk_forward(points: Tensor, centers: Tensor,
                               scores: Tensor, knn_idx: Tensor,
                               output: Tensor, B: int, N0: int, N1: int,
                               M: int, K: int, O: int,  # noqa: E741
                               aggregate: int) -> None:
    """A sum, whatever ``aggregate`` asks for, as in mmcv."""
    output.copy_(_assign_scores(points, centers, scores, knn_idx))


@provides
def assign_score_withk_backward(grad_out: Tensor, points: Tensor,
                                centers: Tensor, scores: Tensor,
                                knn_idx: Tensor, grad_points: Tensor,
                                grad_centers: Tensor, grad_scores: Tensor,
                                B: int, N0: int, N1: int, M: int, K: int,
                                O: int,  # noqa: E741
                                aggregate: int) -> None:
    leaves = [x.detach().requires_grad_() for x in (points, centers, scores)]
    with torch.enable_grad():
        output = _assign_scores(*leaves, knn_idx)
    grads = torch.autograd.grad(output, leaves, grad_out)
    for buffer, grad in zip((grad_points, grad_centers, grad_scores), grads,
                            strict=True):
        buffer += grad


@provides
def chamfer_distance_forward(xyz1: Tensor, xyz2: Tensor, dist1: Tensor,
                             dist2: Tensor, idx1: Tensor,
                             idx2: Tensor) -> None:
    """Squared distances to the nearest point of the other set, in 2D."""
    solid1, solid2 = (torch.nn.functional.pad(xyz, (0, 1))
                      for xyz in (xyz1, xyz2))
    for source, target, dist, idx in ((solid2, solid1, dist1, idx1),
                                      (solid1, solid2, dist2, idx2)):
        index, squared = k_nearest(source, target, 1)
        dist.copy_(squared.squeeze(2))
        idx.copy_(index.squeeze(2))


@provides
def chamfer_distance_backward(xyz1: Tensor, xyz2: Tensor, idx1: Tensor,
                              idx2: Tensor, graddist1: Tensor,
                              graddist2: Tensor, gradxyz1: Tensor,
                              gradxyz2: Tensor) -> None:
    for own, other, idx, grad, grad_own, grad_other in (
        (xyz1, xyz2, idx1, graddist1, gradxyz1, gradxyz2),
        (xyz2, xyz1, idx2, graddist2, gradxyz2, gradxyz1)):
        where = idx.long()[..., None].expand(-1, -1, own.shape[2])
        share = 2 * grad[..., None] * (own - other.gather(1, where))
        grad_own += share
        grad_other.scatter_add_(1, where, -share.to(grad_other))
