"""mmdet3d's CenterPoint-pillar, shrunk to two CPU cores, on synthetic data.

Everything but sizes is inherited from the installed mmdet3d: pillars of 0.8 m
instead of 0.2 m, thinner convolutions, no class-balanced resampling and no
pasted objects. Data: ``python tools/create_data.py synthetic-nuscenes --out
data/synthetic-nuscenes``. ``MMTURBOX=0`` in the environment trains this same
file stock.
"""

_base_ = __import__(
    'importlib.util',
    fromlist=['']).find_spec('mmdet3d').submodule_search_locations[0] + (
        '/.mim/configs/centerpoint/'
        'centerpoint_pillar02_second_secfpn_8xb4-cyclic-20e_nus-3d.py')
custom_imports = dict(
    imports=['mmturbox.enable'], allow_failed_imports=False)

data_root = 'data/synthetic-nuscenes/'
class_names = [
    'car', 'truck', 'construction_vehicle', 'bus', 'trailer', 'barrier',
    'motorcycle', 'bicycle', 'pedestrian', 'traffic_cone'
]
metainfo = dict(classes=class_names, version='v1.0-mini')
data_prefix = dict(pts='samples/LIDAR_TOP', img='', sweeps='sweeps/LIDAR_TOP')
point_cloud_range = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]
voxel_size = [0.8, 0.8, 8]

# Running statistics that settle within a hundred iterations.
norm_cfg = dict(momentum=0.1)

model = dict(
    data_preprocessor=dict(
        voxel_layer=dict(
            max_num_points=10,
            voxel_size=voxel_size,
            max_voxels=(12000, 16384))),
    pts_voxel_encoder=dict(
        feat_channels=[16], voxel_size=voxel_size, norm_cfg=norm_cfg),
    pts_middle_encoder=dict(in_channels=16, output_shape=(128, 128)),
    pts_backbone=dict(
        in_channels=16, out_channels=[16, 32, 64], norm_cfg=norm_cfg),
    pts_neck=dict(
        in_channels=[16, 32, 64],
        out_channels=[32, 32, 32],
        norm_cfg=norm_cfg),
    pts_bbox_head=dict(
        in_channels=96,
        share_conv_channel=32,
        separate_head=dict(head_conv=32),
        bbox_coder=dict(voxel_size=voxel_size[:2])),
    train_cfg=dict(pts=dict(grid_size=[128, 128, 1], voxel_size=voxel_size)),
    test_cfg=dict(pts=dict(voxel_size=voxel_size[:2])))

train_pipeline = [
    dict(type='LoadPointsFromFile', coord_type='LIDAR', load_dim=5, use_dim=5),
    dict(
        type='LoadPointsFromMultiSweeps',
        sweeps_num=9,
        use_dim=[0, 1, 2, 3, 4],
        pad_empty_sweeps=True,
        remove_close=True),
    dict(type='LoadAnnotations3D', with_bbox_3d=True, with_label_3d=True),
    dict(
        type='GlobalRotScaleTrans',
        rot_range=[-0.3925, 0.3925],
        scale_ratio_range=[0.95, 1.05],
        translation_std=[0, 0, 0]),
    dict(
        type='RandomFlip3D',
        sync_2d=False,
        flip_ratio_bev_horizontal=0.5,
        flip_ratio_bev_vertical=0.5),
    dict(type='PointsRangeFilter', point_cloud_range=point_cloud_range),
    dict(type='ObjectRangeFilter', point_cloud_range=point_cloud_range),
    dict(type='ObjectNameFilter', classes=class_names),
    dict(type='PointShuffle'),
    dict(
        type='Pack3DDetInputs',
        keys=['points', 'gt_bboxes_3d', 'gt_labels_3d'])
]
train_dataloader = dict(
    _delete_=True,
    batch_size=2,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='NuScenesDataset',
        data_root=data_root,
        ann_file='nuscenes_infos_train.pkl',
        pipeline=train_pipeline,
        metainfo=metainfo,
        test_mode=False,
        data_prefix=data_prefix,
        use_valid_flag=True,
        box_type_3d='LiDAR'))
val_dataloader = dict(
    dataset=dict(data_root=data_root, metainfo=metainfo))
test_dataloader = val_dataloader
val_evaluator = dict(
    data_root=data_root, ann_file=data_root + 'nuscenes_infos_val.pkl')
test_evaluator = val_evaluator

max_epochs = 2
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
lr = 1e-4
param_scheduler = [
    dict(
        type='CosineAnnealingLR',
        T_max=max_epochs // 2,
        eta_min=lr * 10,
        begin=0,
        end=max_epochs // 2,
        by_epoch=True,
        convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        T_max=max_epochs // 2,
        eta_min=lr * 1e-4,
        begin=max_epochs // 2,
        end=max_epochs,
        by_epoch=True,
        convert_to_iter_based=True)
]
auto_scale_lr = dict(base_batch_size=2)
default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(interval=1, max_keep_ckpts=2))
randomness = dict(seed=0)
