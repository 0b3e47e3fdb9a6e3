"""Rigid transforms, column vectors, quaternions as (w, x, y, z)."""

import numpy as np


def yaw_quaternion(yaw: float) -> list[float]:
    """Rotation about z by ``yaw`` radians."""
    return [float(np.cos(yaw / 2)), 0., 0., float(np.sin(yaw / 2))]


def quaternion_matrix(q) -> np.ndarray:
    """(3, 3) rotation of the unit quaternion ``q``."""
    w, x, y, z = q
    return np.array(
        [[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
         [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
         [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]])


def rigid(rotation, translation) -> np.ndarray:
    """(4, 4) float64 from a quaternion or a (3, 3) matrix, and metres."""
    matrix = np.eye(4)
    rotation = np.asarray(rotation, dtype=np.float64)
    if rotation.shape == (4, ):
        rotation = quaternion_matrix(rotation)
    matrix[:3, :3] = rotation
    matrix[:3, 3] = translation
    return matrix


def inverse_rigid(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a (4, 4) rigid transform."""
    out = np.eye(4)
    out[:3, :3] = matrix[:3, :3].T
    out[:3, 3] = -matrix[:3, :3].T @ matrix[:3, 3]
    return out


def transform(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(N, 3) points through a (4, 4) transform."""
    return points @ matrix[:3, :3].T + matrix[:3, 3]


def count_inside(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Points inside each upright box, faces included.

    Args:
        points: (P, 3), boxes: (N, 7) centre, length, width, height, yaw, both
            in one upright frame.

    Returns:
        (N,) int64.
    """
    counts = np.zeros(len(boxes), dtype=np.int64)
    for i, (x, y, z, dx, dy, dz, yaw) in enumerate(boxes):
        near = points[np.abs(points[:, 0] - x) + np.abs(points[:, 1] - y) <
                      dx + dy] - (x, y, z)
        cos, sin = np.cos(yaw), np.sin(yaw)
        along = near[:, 0] * cos + near[:, 1] * sin
        across = near[:, 1] * cos - near[:, 0] * sin
        counts[i] = ((np.abs(along) <= dx / 2) & (np.abs(across) <= dy / 2) &
                     (np.abs(near[:, 2]) <= dz / 2)).sum()
    return counts
