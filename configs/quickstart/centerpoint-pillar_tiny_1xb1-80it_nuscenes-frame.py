"""The quick-start model on one real nuScenes key frame.

For overfitting: no augmentation, no resampling, a flat learning rate. The
folder (``data_root``) holds one ``LIDAR_TOP`` file and an info file, as in
the demo data of mmdetection3d.
"""

_base_ = './centerpoint-pillar_tiny_1xb2_synthetic-nus.py'

data_root = 'data/nuscenes_frame/'
class_names = [
    'car', 'truck', 'construction_vehicle', 'bus', 'trailer', 'barrier',
    'motorcycle', 'bicycle', 'pedestrian', 'traffic_cone'
]
point_cloud_range = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]

# Cells of 1.6 m instead of 3.2 m, so that pedestrians side by side get one
# each; a thinner head pays for them.
model = dict(
    pts_neck=dict(upsample_strides=[1, 2, 4]),
    pts_bbox_head=dict(
        share_conv_channel=16,
        separate_head=dict(head_conv=16),
        bbox_coder=dict(out_size_factor=2)),
    train_cfg=dict(pts=dict(out_size_factor=2)),
    test_cfg=dict(pts=dict(out_size_factor=2)))

load_points = [
    dict(type='LoadPointsFromFile', coord_type='LIDAR', load_dim=5, use_dim=5),
    # No sweeps; turns the ring column into the time lag.
    dict(
        type='LoadPointsFromMultiSweeps',
        sweeps_num=0,
        use_dim=[0, 1, 2, 3, 4],
        pad_empty_sweeps=True),
    dict(type='PointsRangeFilter', point_cloud_range=point_cloud_range)
]
train_pipeline = [
    *load_points,
    dict(type='LoadAnnotations3D', with_bbox_3d=True, with_label_3d=True),
    dict(type='ObjectRangeFilter', point_cloud_range=point_cloud_range),
    dict(type='ObjectNameFilter', classes=class_names),
    dict(
        type='Pack3DDetInputs',
        keys=['points', 'gt_bboxes_3d', 'gt_labels_3d'])
]
test_pipeline = [*load_points, dict(type='Pack3DDetInputs', keys=['points'])]

train_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='InfiniteSampler', shuffle=False),
    dataset=dict(
        data_root=data_root,
        ann_file='n015-2018-07-24-11-22-45+0800.pkl',
        data_prefix=dict(pts='', img='', sweeps=''),
        pipeline=train_pipeline))
# The official evaluation needs the tables of a whole set.
val_dataloader = None
val_cfg = None
val_evaluator = None
test_dataloader = None
test_cfg = None
test_evaluator = None

train_cfg = dict(
    _delete_=True, type='IterBasedTrainLoop', max_iters=80, val_interval=1000)
param_scheduler = []
optim_wrapper = dict(optimizer=dict(lr=1e-3))
default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(by_epoch=False, interval=80))
log_processor = dict(by_epoch=False, window_size=10)
