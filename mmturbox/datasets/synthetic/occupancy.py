"""Occupancy labels of key frames, in SurroundOcc's form.

A label holds rows ix, iy, iz, class of all voxels that are not empty, in the
LiDAR frame (https://github.com/weiyithu/SurroundOcc, ``docs/data.md``).
"""

from pathlib import Path

import numpy as np

from ..files import complete_file
from .geometry import inverse_rigid, rigid, transform, yaw_quaternion
from .ground_classes import Ground
from .kinds import KINDS

POINT_CLOUD_RANGE = (-50., -50., -5., 50., 50., 3.)
VOXEL_SIZE = .5
GRID_SIZE = (200, 200, 16)
FOLDER = 'nuscenes_occ/samples'
CLASSES = ('noise', 'barrier', 'bicycle', 'bus', 'car',
           'construction_vehicle', 'motorcycle', 'pedestrian', 'traffic_cone',
           'trailer', 'truck', 'driveable_surface', 'other_flat', 'sidewalk',
           'terrain', 'manmade', 'vegetation')
_LOW = np.array(POINT_CLOUD_RANGE[:3])


def kind_classes(kind: np.ndarray) -> np.ndarray:
    """(N,) classes of actors, given as indices into ``KINDS``."""
    return np.array([CLASSES.index(k.name) for k in KINDS])[kind]


def structure_classes(kind: np.ndarray) -> np.ndarray:
    """(M,) classes of structures, 0 for a building, 1 for a tree."""
    return np.array([CLASSES.index(c) for c in ('manmade', 'vegetation')
                     ])[kind]


def occupancy(boxes: np.ndarray, classes: np.ndarray, ground: Ground,
              lidar2global: np.ndarray) -> np.ndarray:
    """Voxels that the ground passes through or that boxes reach into.

    In a voxel with several things the smallest box counts, so that none is
    lost, and any box counts before the ground.

    Args:
        boxes: (N, 7) centre, length, width, height in metres, yaw; global
            frame.
        classes: (N,) index into ``CLASSES``.
        ground: at z = 0.
        lidar2global: (4, 4).

    Returns:
        (V, 4) int64 rows ix, iy, iz, class, sorted.
    """
    grid = np.full(GRID_SIZE, -1, dtype=np.int8)
    _fill_ground(grid, ground, lidar2global)
    global2lidar = inverse_rigid(lidar2global)
    centres = transform(global2lidar, boxes[:, :3])
    reach = np.linalg.norm(boxes[:, 3:6], axis=1) / 2
    near = (np.abs(centres[:, :2]) < reach[:, None] - _LOW[:2]).all(1)
    # Stable, so that equal boxes keep their order.
    order = np.argsort(-boxes[:, 3:6].prod(1), kind='stable')
    for i in order[near[order]]:
        box2lidar = global2lidar @ rigid(
            yaw_quaternion(boxes[i, 6]), boxes[i, :3])
        _fill_box(grid, int(classes[i]), box2lidar, boxes[i, 3:6] / 2)
    voxels = np.argwhere(grid >= 0)
    return np.column_stack([voxels, grid[tuple(voxels.T)]]).astype(np.int64)


def write_occupancy(root: Path, lidar_file: str, label: np.ndarray) -> None:
    """Write ``nuscenes_occ/samples/{name of the LiDAR file}.npy``.

    Args:
        root: data root.
        lidar_file: path of the key frame's points.
        label: from ``occupancy``.
    """
    path = Path(root) / FOLDER / f'{Path(lidar_file).name}.npy'
    with complete_file(path) as file:
        np.save(file, label)


def _fill_ground(grid: np.ndarray, ground: Ground,
                 lidar2global: np.ndarray) -> None:
    """Voxels that the plane z = 0 passes through, one or two a column."""
    middles = _LOW[:2] + VOXEL_SIZE * (np.indices(GRID_SIZE[:2]).transpose(
        1, 2, 0) + .5)
    normal, height = lidar2global[2, :3], lidar2global[2, 3]
    z = -(height + middles @ normal[:2]) / normal[2]
    points = np.concatenate([middles, z[..., None]], -1)
    classes = ground.at(transform(lidar2global, points)[..., :2])
    # The plane rises and falls by so much within a column.
    slack = np.abs(normal[:2] / normal[2]).sum() * VOXEL_SIZE / 2
    for level in (z - slack, z + slack):
        iz = np.floor((level - _LOW[2]) / VOXEL_SIZE).astype(int)
        ix, iy = np.nonzero((iz >= 0) & (iz < GRID_SIZE[2]))
        grid[ix, iy, iz[ix, iy]] = classes[ix, iy]


def _fill_box(grid: np.ndarray, value: int, box2lidar: np.ndarray,
              half: np.ndarray) -> None:
    """Voxels that a box reaches into.

    Tested along the faces' normals of voxel and box; that is exact but for
    slivers at the edges of boxes that stand askew in all three axes.
    """
    rotation, centre = box2lidar[:3, :3], box2lidar[:3, 3]
    extent = np.abs(rotation) @ half
    first = np.floor((centre - extent - _LOW) / VOXEL_SIZE).astype(int)
    last = np.floor((centre + extent - _LOW) / VOXEL_SIZE).astype(int)
    first = np.maximum(first, 0)
    stop = np.minimum(last + 1, GRID_SIZE)
    if (first >= stop).any():
        return
    # A voxel's middle seen from the box, axis by axis.
    offsets = [
        (_LOW[i] + VOXEL_SIZE * (np.arange(first[i], stop[i]) + .5) -
         centre[i])[:, None] * rotation[i] for i in range(3)
    ]
    seen = offsets[0][:, None, None] + offsets[1][:, None] + offsets[2]
    reach = half + VOXEL_SIZE / 2 * np.abs(rotation).sum(0)
    inside = (np.abs(seen) < reach).all(-1)
    part = grid[tuple(map(slice, first, stop))]
    part[inside] = value
