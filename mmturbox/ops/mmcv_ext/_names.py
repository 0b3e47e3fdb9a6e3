"""Every function that mmcv 2.1's ``mmcv/ops/*.py`` take from ``_ext``."""

NAMES = frozenset("""
    active_rotated_filter_backward active_rotated_filter_forward
    assign_score_withk_backward assign_score_withk_forward
    ball_query_forward bbox_overlaps bezier_align_backward
    bezier_align_forward bias_act border_align_backward
    border_align_forward box_iou_quadri box_iou_rotated carafe_backward
    carafe_forward carafe_naive_backward carafe_naive_forward
    chamfer_distance_backward chamfer_distance_forward contour_expand
    convex_giou convex_iou correlation_backward correlation_forward
    deform_conv_backward_input deform_conv_backward_parameters
    deform_conv_forward deform_roi_pool_backward deform_roi_pool_forward
    diff_iou_rotated_sort_vertices_forward dynamic_point_to_voxel_backward
    dynamic_point_to_voxel_forward dynamic_voxelize_forward filtered_lrelu
    filtered_lrelu_act_ furthest_point_sampling_forward
    furthest_point_sampling_with_dist_forward fused_bias_leakyrelu
    fused_indice_conv_forward gather_points_backward gather_points_forward
    get_compiler_version get_compiling_cuda_version
    get_indice_pairs_2d_backward get_indice_pairs_2d_forward
    get_indice_pairs_3d_backward get_indice_pairs_3d_forward
    get_indice_pairs_4d_forward group_points_backward group_points_forward
    hard_voxelize_forward indice_conv_backward indice_conv_forward
    indice_maxpool_backward indice_maxpool_forward
    iou3d_boxes_overlap_bev_forward iou3d_nms3d_forward
    iou3d_nms3d_normal_forward knn_forward masked_col2im_forward
    masked_im2col_forward min_area_polygons modulated_deform_conv_backward
    modulated_deform_conv_forward ms_deform_attn_backward
    ms_deform_attn_forward nms nms_match nms_quadri nms_rotated pixel_group
    points_in_boxes_all_forward points_in_boxes_cpu_forward
    points_in_boxes_part_forward points_in_polygons_forward
    prroi_pool_backward prroi_pool_coor_backward prroi_pool_forward
    psamask_backward psamask_forward riroi_align_rotated_backward
    riroi_align_rotated_forward roi_align_backward roi_align_forward
    roi_align_rotated_backward roi_align_rotated_forward roi_pool_backward
    roi_pool_forward roiaware_pool3d_backward roiaware_pool3d_forward
    roipoint_pool3d_forward rotated_feature_align_backward
    rotated_feature_align_forward sigmoid_focal_loss_backward
    sigmoid_focal_loss_forward softmax_focal_loss_backward
    softmax_focal_loss_forward softnms stack_ball_query_forward
    stack_group_points_backward stack_group_points_forward
    sync_bn_backward_data sync_bn_backward_param sync_bn_forward_mean
    sync_bn_forward_output sync_bn_forward_var three_interpolate_backward
    three_interpolate_forward three_nn_forward tin_shift_backward
    tin_shift_forward upfirdn2d
""".split())
