"""Info files of mmdet3d before 1.1 ("infos", "metadata") to the new layout.

The layout alone does not say how boxes are meant, and two conventions are
about (mmdet3d's ``update_data_coords`` turns one into the other):

- ``wlh``, mmdet3d before 1.0 and what was built on it (BEVFormer, UniAD):
  width, length, height, and the yaw is ``-yaw - pi / 2``;
- ``lwh``, mmdet3d 1.0 and later: length, width, height, yaw from the x axis
  towards the y axis. This is what the new layout has.

Cars, trucks and bicycles are longer than wide, and driving vehicles head
where they go; this tells the conventions apart, and a file where it does not
is refused. 2D boxes of the cameras are not in the old files, so that
``cam_instances`` is absent from the new ones.
"""

import os
import pickle
from pathlib import Path

import numpy as np

from ..files import complete_file
from ..info_check import DataError, info_layout
from .annotations import AGENT_STEPS, CLASSES
from .ego import can_bus_vector
from .infos import INFO_VERSION
from .poses import float_lists, rigid_many

BOXES = ('wlh', 'lwh')
_LONG = ('car', 'truck', 'trailer', 'bus', 'bicycle', 'motorcycle')
_CLEAR = .9
_FEW = 5
# m/s; slower vehicles may be parking.
_DRIVES = 3.
_NEEDED = ('token', 'timestamp', 'lidar_path', 'sweeps',
           'lidar2ego_rotation', 'lidar2ego_translation',
           'ego2global_rotation', 'ego2global_translation')
_OF_BOXES = ('gt_names', 'gt_velocity', 'num_lidar_pts', 'num_radar_pts')
_CARRIED = ('scene_token', 'prev', 'next', 'frame_idx', 'map_location',
            'can_bus', 'ego_status', 'gt_ego_fut_trajs', 'gt_ego_fut_masks',
            'gt_ego_fut_cmd')


def update_infos(path: str | os.PathLike,
                 out_dir: str | os.PathLike,
                 boxes: str | None = None) -> Path:
    """Convert an old nuScenes info file.

    Args:
        path: of the old file; it stays as it is. As with any pickle, loading
            it runs what it says: only use files that you trust.
        out_dir: where a file of the same name is made.
        boxes: ``'wlh'`` or ``'lwh'``, None to find out.

    Returns:
        The new file.

    Raises:
        DataError: for a file that is not of the old nuScenes layout, or whose
            boxes cannot be told.
    """
    path, out = Path(path), Path(out_dir) / Path(path).name
    if not path.is_file():
        raise DataError(f'the info file {path} does not exist')
    layout = info_layout(path)
    if layout != 'old':
        raise DataError(f'{path} has no "infos" and "metadata", so that it is '
                        'no old nuScenes info file' +
                        (': it has the new layout already'
                         if layout == 'new' else ''))
    if out.exists():
        raise DataError(f'{out} exists; choose another --out')
    with open(path, 'rb') as file:
        old = pickle.load(file)
    _check(path, old)
    boxes = boxes or _convention(path, old['infos'])
    data_list = []
    for i, info in enumerate(old['infos']):
        try:
            data_list.append(_record(info, i, boxes))
        except KeyError as error:
            raise DataError(f'record {i} of {path} lacks {error}: it is not '
                            'of nuScenes') from error
    _check_headings(path, data_list)
    names = {n for info in old['infos'] for n in info.get('gt_names', ())}
    categories = {name: i for i, name in enumerate(CLASSES)}
    categories.update(dict.fromkeys(sorted(names - {*CLASSES}), -1))
    metainfo = dict(
        categories=categories,
        dataset='nuscenes',
        version=old['metadata']['version'],
        info_version=INFO_VERSION)
    with complete_file(out) as file:
        pickle.dump(dict(metainfo=metainfo, data_list=data_list), file)
    return out


def _check(path: Path, old: dict) -> None:
    metadata = old.get('metadata')
    version = metadata.get('version') if isinstance(metadata, dict) else None
    if not isinstance(version, str):
        raise DataError(f'{path} does not say its version of nuScenes '
                        '(metadata.version); make it anew from the tables: '
                        'create_data.py nuscenes')
    if not isinstance(old.get('infos'), list):
        raise DataError(
            f'the "infos" of {path} are no list but a '
            f'{type(old.get("infos")).__name__}: another program made it; '
            'make it anew from the tables: create_data.py nuscenes')
    for i, info in enumerate(old['infos']):
        needed = _NEEDED + _OF_BOXES * ('gt_boxes' in info)
        lacking = [key for key in needed if key not in info]
        if lacking:
            raise DataError(f'record {i} of {path} lacks '
                            f'{", ".join(lacking)}: it is not of nuScenes')
        if 'gt_boxes' in info:
            _check_boxes(f'record {i} of {path}', info)


def _check_boxes(record: str, info: dict) -> None:
    count, shape = len(info['gt_names']), np.shape(info['gt_boxes'])
    # Without boxes the array may be empty in any way.
    if shape != (count, 7) and (count or np.size(info['gt_boxes'])):
        raise DataError(
            f'{record} has gt_boxes of shape {shape} where ({count}, 7) is '
            f'due for {count} gt_names: another program made it; make it '
            'anew from the tables: create_data.py nuscenes')
    for key in _OF_BOXES:
        if len(info[key]) != count:
            raise DataError(f'{record} has {count} gt_names but '
                            f'{len(info[key])} {key}; make the file anew '
                            'from the tables: create_data.py nuscenes')


def _convention(path: Path, infos: list[dict]) -> str:
    longer = [
        box[3] > box[4] for info in infos if 'gt_boxes' in info
        for box, name in zip(info['gt_boxes'], info['gt_names'], strict=True)
        if name in _LONG
    ]
    if not any(len(info.get('gt_boxes', ())) for info in infos):
        return 'lwh'
    share = np.mean(longer) if len(longer) >= _FEW else .5
    if share >= _CLEAR:
        return 'lwh'
    if share <= 1 - _CLEAR:
        return 'wlh'
    raise DataError(
        f'cannot tell how the boxes of {path} are meant: of {len(longer)} '
        f'cars and the like {sum(longer)} are longer in the first size. Say '
        'it with --boxes wlh (made before mmdet3d 1.0) or --boxes lwh')


def _new_boxes(boxes: np.ndarray, convention: str) -> np.ndarray:
    boxes = np.array(boxes, dtype=np.float64).reshape(-1, 7)
    if convention == 'wlh':
        boxes = boxes[:, [0, 1, 2, 4, 3, 5, 6]]
        boxes[:, 6] = -boxes[:, 6] - np.pi / 2
        boxes[:, 6] -= 2 * np.pi * np.floor(boxes[:, 6] / (2 * np.pi) + .5)
    return boxes


def _check_headings(path: Path, data_list: list[dict]) -> None:
    along = []
    for record in data_list:
        for instance in record['instances']:
            label, yaw = instance['bbox_label'], instance['bbox_3d'][6]
            speed = np.hypot(*instance['velocity'])
            if speed > _DRIVES and CLASSES[label] in _LONG and label >= 0:
                along.append(
                    instance['velocity'] @ np.array(
                        [np.cos(yaw), np.sin(yaw)]) > .7 * speed)
    if len(along) >= _FEW and np.mean(along) < _CLEAR:
        raise DataError(
            f'{len(along) - sum(along)} of {len(along)} driving vehicles of '
            f'{path} do not head where they go: the yaw is of no convention '
            'that is known here. Make the file anew from the tables: '
            'create_data.py nuscenes')


def _record(info: dict, index: int, boxes: str) -> dict:
    out = dict(
        sample_idx=index,
        token=info['token'],
        timestamp=info['timestamp'] / 1e6,
        ego2global=_pose(info, 'ego2global'),
        lidar_points=dict(
            num_pts_feats=info.get('num_features', 5),
            lidar_path=Path(info['lidar_path']).name,
            lidar2ego=_pose(info, 'lidar2ego')))
    out.update({key: info[key] for key in _CARRIED if key in info})
    if 'can_bus' in info:
        # BEVFormer's files have the bus's own pose there and its dataset
        # puts the one of the tables in its place.
        pose = {
            key: info[f'ego2global_{key}']
            for key in ('translation', 'rotation')
        }
        out['can_bus'] = can_bus_vector(pose, info['can_bus'][7:16])
    sweeps = [_sweep(sweep) for sweep in info['sweeps']]
    if sweeps:
        out['lidar_sweeps'] = sweeps
    if info.get('cams'):
        out['images'] = {name: _image(c) for name, c in info['cams'].items()}
    out['instances'] = _instances(info, boxes) if 'gt_boxes' in info else []
    return out


def _pose(row: dict, name: str) -> list:
    return float_lists(
        rigid_many([row[f'{name}_rotation']], [row[f'{name}_translation']])[0])


def _lidar2sensor(row: dict) -> list:
    rotation = np.asarray(row['sensor2lidar_rotation'])
    out = np.eye(4)
    out[:3, :3] = rotation.T
    out[:3, 3] = -rotation.T @ row['sensor2lidar_translation']
    return float_lists(out)


def _sweep(row: dict) -> dict:
    return dict(
        timestamp=row['timestamp'] / 1e6,
        sample_data_token=row['sample_data_token'],
        ego2global=_pose(row, 'ego2global'),
        lidar_points=dict(
            # Relative to the data root.
            lidar_path='/'.join(Path(row['data_path']).parts[-3:]),
            lidar2ego=_pose(row, 'sensor2ego'),
            lidar2sensor=_lidar2sensor(row)))


def _image(row: dict) -> dict:
    # MIT's BEVFusion has the other name.
    key = ('camera_intrinsics'
           if 'camera_intrinsics' in row else 'cam_intrinsic')
    return dict(
        img_path=Path(row['data_path']).name,
        cam2img=np.asarray(row[key]).tolist(),
        cam2ego=_pose(row, 'sensor2ego'),
        lidar2cam=_lidar2sensor(row),
        sample_data_token=row['sample_data_token'],
        timestamp=row['timestamp'] / 1e6)


def _instances(info: dict, convention: str) -> list[dict]:
    boxes = _new_boxes(info['gt_boxes'], convention).tolist()
    velocity = np.asarray(info['gt_velocity'], dtype=np.float64)
    futures = np.shape(info.get('gt_agent_fut_trajs'))[1:] == (AGENT_STEPS, 2)
    out = []
    for i, name in enumerate(info['gt_names']):
        label = CLASSES.index(name) if name in CLASSES else -1
        lidar, radar = (int(info[f'num_{s}_pts'][i])
                        for s in ('lidar', 'radar'))
        instance = dict(
            bbox_3d=boxes[i],
            bbox_label=label,
            bbox_label_3d=label,
            bbox_3d_isvalid=lidar + radar > 0,
            velocity=velocity[i].tolist(),
            num_lidar_pts=lidar,
            num_radar_pts=radar)
        if 'instance_inds' in info:
            instance['instance_inds'] = int(info['instance_inds'][i])
        if futures:
            for key in ('gt_agent_fut_trajs', 'gt_agent_fut_masks'):
                instance[key] = np.asarray(info[key][i], np.float32)
        out.append(instance)
    return out
