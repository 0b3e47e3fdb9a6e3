"""The annotated boxes of a key frame and where they go next.

Future trajectories follow SparseDrive's converter (``gt_fut_trajs`` there):
the devkit's ``PredictHelper`` looks ahead, and the way is turned by the
difference of the box's heading in the lidar and in the global frame.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .poses import inverse_many, rigid_many

CLASSES = ('car', 'truck', 'trailer', 'bus', 'construction_vehicle',
           'bicycle', 'motorcycle', 'pedestrian', 'traffic_cone', 'barrier')
# Order of mmdet3d's attribute labels; the last one is "no attribute".
ATTRIBUTES = ('cycle.with_rider', 'cycle.without_rider', 'pedestrian.moving',
              'pedestrian.standing', 'pedestrian.sitting_lying_down',
              'vehicle.moving', 'vehicle.parked', 'vehicle.stopped', 'None')
AGENT_STEPS = 12
_STEP = .5
# Key frames come at 2 Hz give or take; the devkit's tolerance.
_LATE = .15


@dataclass
class Annotations:
    """N boxes of one key frame.

    Attributes:
        rows: ``sample_annotation`` rows.
        labels: index into ``CLASSES``, -1 for what the benchmark ignores.
        attributes: index into ``ATTRIBUTES``.
        box2global: (N, 4, 4).
        sizes: (N, 3) length, width, height in metres.
        velocity: (N, 3) in the global frame, m/s, z is 0; NaN if unknown.
    """
    rows: list[dict]
    labels: list[int]
    attributes: list[int]
    box2global: np.ndarray
    sizes: np.ndarray
    velocity: np.ndarray


def read_annotations(nusc: Any, sample: dict) -> Annotations:
    from nuscenes.eval.detection.utils import category_to_detection_name
    rows = [nusc.get('sample_annotation', token) for token in sample['anns']]
    labels, attributes = [], []
    for row in rows:
        name = category_to_detection_name(row['category_name'])
        labels.append(CLASSES.index(name) if name in CLASSES else -1)
        tokens = row['attribute_tokens']
        name = nusc.get('attribute', tokens[0])['name'] if tokens else 'None'
        attributes.append(ATTRIBUTES.index(name))
    velocity = np.array([nusc.box_velocity(row['token']) for row in rows])
    velocity = velocity.reshape(-1, 3)
    velocity[:, 2] = 0
    return Annotations(
        rows, labels, attributes,
        rigid_many([row['rotation'] for row in rows],
                   [row['translation'] for row in rows]),
        np.array([row['size'] for row in rows]).reshape(-1, 3)[:, [1, 0, 2]],
        velocity)


def instances(nusc: Any, boxes: Annotations,
              lidar2global: np.ndarray) -> list[dict]:
    """``instances`` of a record, in the lidar frame."""
    global2lidar = inverse_many(lidar2global)
    box2lidar = global2lidar @ boxes.box2global
    # The devkit's yaw; it differs from the heading by the square of the
    # sensor's tilt.
    yaw = np.arctan2(-box2lidar[:, 0, 1], box2lidar[:, 0, 0])
    boxes_3d = np.concatenate(
        [box2lidar[:, :3, 3], boxes.sizes, yaw[:, None]], axis=1).tolist()
    velocity = (boxes.velocity @ global2lidar[:3, :3].T)[:, :2].tolist()
    turn = _heading(box2lidar) - _heading(boxes.box2global)
    out = []
    for i, row in enumerate(boxes.rows):
        trajs, masks = _future(nusc, row, turn[i])
        out.append(
            dict(
                bbox_3d=boxes_3d[i],
                bbox_label=boxes.labels[i],
                bbox_label_3d=boxes.labels[i],
                bbox_3d_isvalid=row['num_lidar_pts'] + row['num_radar_pts']
                > 0,
                velocity=velocity[i],
                num_lidar_pts=row['num_lidar_pts'],
                num_radar_pts=row['num_radar_pts'],
                attr_label=boxes.attributes[i],
                instance_token=row['instance_token'],
                instance_inds=nusc.getind('instance', row['instance_token']),
                gt_agent_fut_trajs=trajs,
                gt_agent_fut_masks=masks))
    return out


def _heading(rigid: np.ndarray) -> np.ndarray:
    """Direction of the x axis in the x-y plane, radians."""
    return np.arctan2(rigid[:, 1, 0], rigid[:, 0, 0])


def _future(nusc: Any, row: dict,
            turn: float) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the next key frames, (12, 2) float32, and which are known.

    Args:
        nusc: the devkit's ``NuScenes``.
        row: ``sample_annotation`` row of now.
        turn: from the global to the lidar frame, radians.
    """
    masks = np.zeros(AGENT_STEPS, np.float32)
    trajs = np.zeros((AGENT_STEPS, 2), np.float32)
    begin = nusc.get('sample', row['sample_token'])['timestamp']
    latest = begin + 1e6 * (AGENT_STEPS * _STEP + _LATE)
    places = [row['translation'][:2]]
    while row['next'] != '' and len(places) <= AGENT_STEPS:
        row = nusc.get('sample_annotation', row['next'])
        if nusc.get('sample', row['sample_token'])['timestamp'] >= latest:
            break
        places.append(row['translation'][:2])
    steps = len(places) - 1
    if steps:
        cos, sin = np.cos(turn), np.sin(turn)
        masks[:steps] = 1
        trajs[:steps] = np.diff(places, axis=0) @ [[cos, sin], [-sin, cos]]
    return trajs, masks
