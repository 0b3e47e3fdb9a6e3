"""Poses of ``sample_data`` rows, many at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def rigid_many(rotations: Sequence, translations: Sequence) -> np.ndarray:
    """(N, 4, 4) float64 from N quaternions (w, x, y, z) and N (x, y, z)."""
    q = np.asarray(rotations, dtype=np.float64).reshape(-1, 4)
    w, x, y, z = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    out = np.zeros((len(q), 4, 4))
    out[:, 0, 0] = 1 - 2 * (y * y + z * z)
    out[:, 0, 1] = 2 * (x * y - w * z)
    out[:, 0, 2] = 2 * (x * z + w * y)
    out[:, 1, 0] = 2 * (x * y + w * z)
    out[:, 1, 1] = 1 - 2 * (x * x + z * z)
    out[:, 1, 2] = 2 * (y * z - w * x)
    out[:, 2, 0] = 2 * (x * z - w * y)
    out[:, 2, 1] = 2 * (y * z + w * x)
    out[:, 2, 2] = 1 - 2 * (x * x + y * y)
    out[:, :3, 3] = np.reshape(translations, (-1, 3))
    out[:, 3, 3] = 1
    return out


def inverse_many(rigid: np.ndarray) -> np.ndarray:
    """Inverse of (..., 4, 4) rigid transforms."""
    out = np.zeros_like(rigid)
    rotation = np.swapaxes(rigid[..., :3, :3], -1, -2)
    out[..., :3, :3] = rotation
    out[..., :3, 3:] = -rotation @ rigid[..., :3, 3:]
    out[..., 3, 3] = 1
    return out


def sensor_poses(nusc: Any, rows: Sequence[dict],
                 sensors: Sequence[dict]) -> tuple[np.ndarray, np.ndarray]:
    """sensor2ego and ego2global, (N, 4, 4) each, of ``sample_data`` rows.

    Args:
        nusc: the devkit's ``NuScenes``.
        rows: N ``sample_data`` rows.
        sensors: their ``calibrated_sensor`` rows.
    """
    poses = [nusc.get('ego_pose', row['ego_pose_token']) for row in rows]
    both = [*sensors, *poses]
    rigid = rigid_many([r['rotation'] for r in both],
                       [r['translation'] for r in both])
    return rigid[:len(rows)], rigid[len(rows):]


def calibrations(nusc: Any, rows: Sequence[dict]) -> list[dict]:
    """``calibrated_sensor`` rows of ``sample_data`` rows."""
    return [
        nusc.get('calibrated_sensor', row['calibrated_sensor_token'])
        for row in rows
    ]


def float_lists(matrices: np.ndarray) -> list:
    """Nested lists; info files keep single precision."""
    return matrices.astype(np.float32).tolist()
