"""mmdet3d 1.x info files from nuScenes tables.

The records are those of mmdet3d 1.4's converter (``info_version`` 1.1), for
any ``NuScenes`` object of the official devkit, with or without cameras; only
``cam_instances`` (2D boxes of monocular detectors) is not made.

Frames: ``lidar`` is the LIDAR_TOP frame (x right, y forward, z up); a box is
its centre of gravity, (dx, dy, dz) = (l, w, h) and the yaw in that frame.
"""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from .synthetic.geometry import inverse_rigid, rigid

CLASSES = ('car', 'truck', 'trailer', 'bus', 'construction_vehicle',
           'bicycle', 'motorcycle', 'pedestrian', 'traffic_cone', 'barrier')
INFO_VERSION = '1.1'
# Info file suffix -> devkit split, by table version.
_SPLITS = {
    'v1.0-mini': dict(train='mini_train', val='mini_val'),
    'v1.0-trainval': dict(train='train', val='val'),
    'v1.0-test': dict(test='test'),
}


def write_infos(nusc: Any,
                out_dir: str | os.PathLike,
                prefix: str = 'nuscenes',
                max_sweeps: int = 10) -> list[Path]:
    """Write ``{prefix}_infos_{train,val}.pkl`` (or ``_test``).

    Args:
        nusc: ``nuscenes.NuScenes`` of an official version.
        out_dir: usually the data root.
        max_sweeps: past LiDAR frames a sample lists at most.

    Returns:
        The files, each complete under its name or not there.

    Raises:
        ValueError: for a table version without official splits.
    """
    from nuscenes.utils.splits import create_splits_scenes
    if nusc.version not in _SPLITS:
        raise ValueError(f'no official splits for version {nusc.version!r}, '
                         f'known are {sorted(_SPLITS)}')
    scenes_of = create_splits_scenes()
    paths = []
    for name, split in _SPLITS[nusc.version].items():
        wanted = set(scenes_of[split])
        tokens = {s['token'] for s in nusc.scene if s['name'] in wanted}
        samples = [s for s in nusc.sample if s['scene_token'] in tokens]
        infos = [
            sample_info(nusc, sample, i, max_sweeps, split != 'test')
            for i, sample in enumerate(samples)
        ]
        path = Path(out_dir) / f'{prefix}_infos_{name}.pkl'
        partial = path.with_name(f'{path.name}.partial-{os.getpid()}')
        with open(partial, 'wb') as file:
            pickle.dump(
                dict(metainfo=_metainfo(nusc), data_list=infos), file)
        partial.replace(path)
        paths.append(path)
    return paths


def sample_info(nusc: Any, sample: dict, index: int, max_sweeps: int,
                with_boxes: bool) -> dict:
    """One entry of ``data_list``."""
    lidar = nusc.get('sample_data', sample['data']['LIDAR_TOP'])
    lidar2ego, ego2global = _poses(nusc, lidar)
    lidar2global = ego2global @ lidar2ego
    info = dict(
        sample_idx=index,
        token=sample['token'],
        timestamp=sample['timestamp'] / 1e6,
        ego2global=_floats(ego2global),
        lidar_points=dict(
            num_pts_feats=5,
            lidar_path=Path(lidar['filename']).name,
            lidar2ego=_floats(lidar2ego)))
    sweeps = _sweeps(nusc, lidar, lidar2global, max_sweeps)
    # mmdet3d pads with the key frame where the key is absent.
    if sweeps:
        info['lidar_sweeps'] = sweeps
    images = _images(nusc, sample, lidar2global)
    if images:
        info['images'] = images
    info['instances'] = _instances(
        nusc, sample, lidar2global) if with_boxes else []
    return info


def _poses(nusc: Any, data: dict) -> tuple[np.ndarray, np.ndarray]:
    """sensor2ego and ego2global of a ``sample_data`` record, (4, 4) each."""
    sensor = nusc.get('calibrated_sensor', data['calibrated_sensor_token'])
    pose = nusc.get('ego_pose', data['ego_pose_token'])
    return (rigid(sensor['rotation'], sensor['translation']),
            rigid(pose['rotation'], pose['translation']))


def _floats(matrix: np.ndarray) -> list:
    # The format keeps single precision.
    return matrix.astype(np.float32).tolist()


def _sweeps(nusc: Any, lidar: dict, lidar2global: np.ndarray,
            max_sweeps: int) -> list[dict]:
    """Past frames, nearest first; ``lidar2sensor`` maps from key frame."""
    sweeps, data = [], lidar
    while len(sweeps) < max_sweeps and data['prev'] != '':
        data = nusc.get('sample_data', data['prev'])
        sensor2ego, ego2global = _poses(nusc, data)
        lidar2sensor = inverse_rigid(ego2global @ sensor2ego) @ lidar2global
        sweeps.append(
            dict(
                timestamp=data['timestamp'] / 1e6,
                sample_data_token=data['token'],
                ego2global=_floats(ego2global),
                lidar_points=dict(
                    lidar_path=data['filename'],
                    lidar2ego=_floats(sensor2ego),
                    lidar2sensor=_floats(lidar2sensor))))
    return sweeps


def _images(nusc: Any, sample: dict, lidar2global: np.ndarray) -> dict:
    images = {}
    for channel in sorted(c for c in sample['data'] if c.startswith('CAM')):
        data = nusc.get('sample_data', sample['data'][channel])
        sensor = nusc.get('calibrated_sensor',
                          data['calibrated_sensor_token'])
        cam2ego, ego2global = _poses(nusc, data)
        images[channel] = dict(
            img_path=Path(data['filename']).name,
            cam2img=sensor['camera_intrinsic'],
            cam2ego=_floats(cam2ego),
            lidar2cam=_floats(
                inverse_rigid(ego2global @ cam2ego) @ lidar2global),
            sample_data_token=data['token'],
            timestamp=data['timestamp'] / 1e6)
    return images


def _instances(nusc: Any, sample: dict, lidar2global: np.ndarray) -> list:
    from nuscenes.eval.detection.utils import category_to_detection_name
    global2lidar = inverse_rigid(lidar2global)
    instances = []
    for ann_token in sample['anns']:
        ann = nusc.get('sample_annotation', ann_token)
        box2lidar = global2lidar @ rigid(ann['rotation'], ann['translation'])
        width, length, height = ann['size']
        # The devkit's yaw; it differs from the heading by the square of the
        # sensor's tilt.
        yaw = np.arctan2(-box2lidar[0, 1], box2lidar[0, 0])
        velocity = global2lidar[:3, :3] @ [
            *nusc.box_velocity(ann_token)[:2], 0.
        ]
        name = category_to_detection_name(ann['category_name'])
        label = CLASSES.index(name) if name in CLASSES else -1
        instances.append(
            dict(
                bbox_3d=[
                    *box2lidar[:3, 3].tolist(), length, width, height,
                    float(yaw)
                ],
                bbox_label=label,
                bbox_label_3d=label,
                bbox_3d_isvalid=ann['num_lidar_pts'] + ann['num_radar_pts']
                > 0,
                velocity=velocity[:2].tolist(),
                num_lidar_pts=ann['num_lidar_pts'],
                num_radar_pts=ann['num_radar_pts']))
    return instances


def _metainfo(nusc: Any) -> dict:
    from nuscenes.eval.detection.utils import category_to_detection_name
    categories = {name: i for i, name in enumerate(CLASSES)}
    for row in nusc.category:
        if category_to_detection_name(row['name']) is None:
            categories[row['name']] = -1
    return dict(
        categories=categories,
        dataset='nuscenes',
        version=nusc.version,
        info_version=INFO_VERSION)
