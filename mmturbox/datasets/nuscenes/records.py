"""One entry of an info file's ``data_list``.

The layout is that of mmdet3d 1.4's converter (``info_version`` 1.1); what the
temporal, map and planning models need beyond it is added: ``scene_token``,
``prev``, ``next``, ``frame_idx``, ``map_location``, ``can_bus``,
``ego_status``, ``gt_ego_fut_*``, and for each instance ``instance_token``,
``instance_inds``, ``attr_label``, ``gt_agent_fut_*``.

Frames: ``lidar`` is the LIDAR_TOP frame (x right, y forward, z up); a box is
its centre of gravity, length, width, height and the yaw in that frame.
"""

from pathlib import Path
from typing import Any

import numpy as np

from .annotations import instances, read_annotations
from .camera_boxes import camera_instances
from .ego import CanBus, can_bus_vector, ego_future
from .poses import calibrations, float_lists, inverse_many, sensor_poses

# Order of mmdet3d's converter.
_CAMERAS = ('CAM_FRONT', 'CAM_FRONT_RIGHT', 'CAM_FRONT_LEFT', 'CAM_BACK',
            'CAM_BACK_LEFT', 'CAM_BACK_RIGHT')


def camera_channels(sample: dict) -> list[str]:
    """Cameras of a key frame, in mmdet3d's order, others by name."""
    known = [name for name in _CAMERAS if name in sample['data']]
    return known + sorted(
        name for name in sample['data']
        if name.startswith('CAM') and name not in known)


def sweep_rows(nusc: Any, lidar: dict, max_sweeps: int) -> list[dict]:
    """Past ``sample_data`` rows of a LiDAR, nearest first."""
    rows = []
    while len(rows) < max_sweeps and lidar['prev'] != '':
        lidar = nusc.get('sample_data', lidar['prev'])
        rows.append(lidar)
    return rows


class RecordMaker:
    """Makes records of key frames.

    Args:
        nusc: the devkit's ``NuScenes``.
        max_sweeps: past LiDAR frames a record lists at most.
        labels: whether the tables have annotations (the test set has none).
        cam_instances: whether to make 2D boxes of the cameras.
    """

    def __init__(self,
                 nusc: Any,
                 max_sweeps: int = 10,
                 labels: bool = True,
                 cam_instances: bool = True):
        self.nusc = nusc
        self.max_sweeps = max_sweeps
        self.labels = labels
        self.cam_instances = cam_instances
        self.can_bus = CanBus(nusc.dataroot)
        self._frame_idx = {}
        for scene in nusc.scene:
            token, place = scene['first_sample_token'], 0
            while token != '':
                self._frame_idx[token] = place
                token, place = nusc.get('sample', token)['next'], place + 1

    def __call__(self, sample: dict, index: int) -> dict:
        """The record of a ``sample`` row that is ``index``-th of its file."""
        nusc = self.nusc
        lidar = nusc.get('sample_data', sample['data']['LIDAR_TOP'])
        sweeps = sweep_rows(nusc, lidar, self.max_sweeps)
        channels = camera_channels(sample)
        cameras = [nusc.get('sample_data', sample['data'][c])
                   for c in channels]
        rows = [lidar, *sweeps, *cameras]
        sensors = calibrations(nusc, rows)
        sensor2ego, ego2global = sensor_poses(nusc, rows, sensors)
        sensor2global = ego2global @ sensor2ego
        lidar2sensor = inverse_many(sensor2global) @ sensor2global[0]
        poses = [
            float_lists(m) for m in (sensor2ego, ego2global, lidar2sensor)
        ]
        first_camera = 1 + len(sweeps)
        info = dict(
            sample_idx=index,
            token=sample['token'],
            timestamp=sample['timestamp'] / 1e6,
            ego2global=poses[1][0],
            lidar_points=dict(
                num_pts_feats=5,
                lidar_path=Path(lidar['filename']).name,
                lidar2ego=poses[0][0]),
            **self._whereabouts(sample, lidar))
        # mmdet3d pads with the key frame where the key is absent.
        if sweeps:
            info['lidar_sweeps'] = [
                _sweep(row, *(p[1 + i] for p in poses))
                for i, row in enumerate(sweeps)
            ]
        if cameras:
            info['images'] = {
                channels[i]: _image(row, sensors[first_camera + i],
                                    poses[0][first_camera + i],
                                    poses[2][first_camera + i])
                for i, row in enumerate(cameras)
            }
        info['instances'] = []
        if self.labels:
            boxes = read_annotations(nusc, sample)
            info['instances'] = instances(nusc, boxes, sensor2global[0])
            info.update(ego_future(nusc, sample))
            if cameras and self.cam_instances:
                info['cam_instances'] = {
                    channels[i]: camera_instances(
                        boxes, sensor2global[first_camera + i],
                        np.array(sensors[first_camera +
                                         i]['camera_intrinsic']),
                        row['width'], row['height'])
                    for i, row in enumerate(cameras)
                }
        return info

    def _whereabouts(self, sample: dict, lidar: dict) -> dict:
        """Place in the scene, on the map, and the state of the vehicle."""
        nusc = self.nusc
        scene = nusc.get('scene', sample['scene_token'])
        motion, status = self.can_bus.state(scene['name'],
                                            sample['timestamp'])
        pose = nusc.get('ego_pose', lidar['ego_pose_token'])
        return dict(
            scene_token=sample['scene_token'],
            prev=sample['prev'],
            next=sample['next'],
            frame_idx=self._frame_idx[sample['token']],
            map_location=nusc.get('log', scene['log_token'])['location'],
            can_bus=can_bus_vector(pose, motion),
            ego_status=status)


def _sweep(row: dict, lidar2ego: list, ego2global: list,
           lidar2sensor: list) -> dict:
    """``lidar2sensor`` is from the lidar frame of the key frame."""
    return dict(
        timestamp=row['timestamp'] / 1e6,
        sample_data_token=row['token'],
        ego2global=ego2global,
        lidar_points=dict(
            lidar_path=row['filename'],
            lidar2ego=lidar2ego,
            lidar2sensor=lidar2sensor))


def _image(row: dict, sensor: dict, cam2ego: list, lidar2cam: list) -> dict:
    return dict(
        img_path=Path(row['filename']).name,
        cam2img=sensor['camera_intrinsic'],
        cam2ego=cam2ego,
        lidar2cam=lidar2cam,
        sample_data_token=row['token'],
        timestamp=row['timestamp'] / 1e6,
        width=row['width'],
        height=row['height'])
