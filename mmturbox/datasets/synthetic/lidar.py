"""A spinning LiDAR, ray-cast against boxes and flat ground.

The sensor frame is nuScenes' LiDAR frame: x right, y forward, z up. A scan is
taken at one instant (no motion during the spin).
"""

from dataclasses import dataclass

import numpy as np

from .geometry import inverse_rigid, rigid, transform, yaw_quaternion


def _mounting() -> tuple[float, ...]:
    # A quarter turn, and half a degree of pitch as on a real roof rack.
    w, _, _, z = yaw_quaternion(-np.pi / 2)
    pitch = np.deg2rad(.5) / 2
    c, s = np.cos(pitch), np.sin(pitch)
    return (w * c, w * s, z * s, z * c)


@dataclass(frozen=True)
class Lidar:
    """Geometry and noise of the sensor.

    Attributes:
        translation, rotation: mounting in the ego frame, metres, quaternion.
        beams, columns: vertical and horizontal resolution.
        elevation: lowest and highest beam in degrees.
        max_range: metres.
        skin: surfaces lie this far inside the annotated box, as annotators
            draw boxes around an object; metres.
        noise: standard deviation of the range in metres, cut at 2 sigma,
            which keeps every return inside its box.
        dropout: share of returns that are lost.
    """
    channel: str = 'LIDAR_TOP'
    translation: tuple[float, ...] = (.94, 0., 1.84)
    rotation: tuple[float, ...] = _mounting()
    beams: int = 32
    columns: int = 1085
    elevation: tuple[float, float] = (-30.67, 10.67)
    max_range: float = 90.
    skin: float = .05
    noise: float = .02
    dropout: float = .03

    @property
    def lidar2ego(self) -> np.ndarray:
        return rigid(self.rotation, self.translation)

    def directions(self) -> np.ndarray:
        """(columns, beams, 3) unit vectors, azimuth from -pi about z."""
        azimuth = -np.pi + 2 * np.pi / self.columns * np.arange(self.columns)
        low, high = np.deg2rad(self.elevation)
        elevation = np.linspace(low, high, self.beams)
        cos = np.cos(elevation)
        return np.stack([
            np.cos(azimuth)[:, None] * cos,
            np.sin(azimuth)[:, None] * cos,
            np.broadcast_to(np.sin(elevation), (self.columns, self.beams))
        ], -1)


@dataclass
class Scan:
    """One scan.

    Attributes:
        points: (P, 5) float32 x, y, z, intensity, ring; sensor frame.
        visible: (N,) share of each box's own returns that nothing hides.
    """
    points: np.ndarray
    visible: np.ndarray


def scan(lidar: Lidar, boxes: np.ndarray, reflectivity: np.ndarray,
         ego2global: np.ndarray, rng: np.random.Generator) -> Scan:
    """Cast all rays of one scan.

    Args:
        boxes: (N, 7) centre, length, width, height in metres, yaw in radians;
            global frame.
        reflectivity: (N,) mean intensity, 0 to 255.
        ego2global: (4, 4).

    Note:
        Deterministic for a given state of ``rng``.
    """
    lidar2global = ego2global @ lidar.lidar2ego
    rays = lidar.directions()
    ranges, owner, alone = _cast(lidar, rays, boxes, lidar2global)
    seen = np.bincount(owner[owner >= 0].ravel(), minlength=len(boxes))
    visible = np.divide(
        seen, alone, out=np.zeros(len(boxes)), where=alone > 0)

    hit = np.isfinite(ranges) & (rng.random(ranges.shape) >= lidar.dropout)
    count = int(hit.sum())
    noise = np.clip(rng.normal(0., 1., count), -2., 2.) * lidar.noise
    points = np.empty((count, 5), dtype=np.float32)
    points[:, :3] = rays[hit] * (ranges[hit] + noise)[:, None]
    # Index -1, the ground, picks the last entry.
    mean = np.append(reflectivity, 8.)[owner[hit]]
    points[:, 3] = np.clip(mean * rng.uniform(.4, 1.6, count), 0, 255).round()
    points[:, 4] = np.nonzero(hit)[1]
    return Scan(points, visible)


def _cast(lidar: Lidar, rays: np.ndarray, boxes: np.ndarray,
          lidar2global: np.ndarray) -> tuple[np.ndarray, ...]:
    """Nearest range and owner of each ray; rays that meet each box at all.

    Returns:
        (columns, beams) ranges, inf where nothing is met; (columns, beams)
        owner, -1 for ground or nothing; (N,) counts.
    """
    down = rays @ lidar2global[2, :3]
    with np.errstate(divide='ignore'):
        ranges = np.where(down < 0, -lidar2global[2, 3] / down, np.inf)
    ranges[ranges > lidar.max_range] = np.inf
    owner = np.full(ranges.shape, -1)
    alone = np.zeros(len(boxes), dtype=np.int64)
    global2lidar = inverse_rigid(lidar2global)
    centres = transform(global2lidar, boxes[:, :3])
    reach = np.linalg.norm(boxes[:, 3:6], axis=1) / 2
    near = np.linalg.norm(centres, axis=1) - reach < lidar.max_range
    for i in np.nonzero(near)[0]:
        yaw = boxes[i, 6]
        box2lidar = rigid(yaw_quaternion(yaw), boxes[i, :3])
        box2lidar = global2lidar @ box2lidar
        half = np.maximum(boxes[i, 3:6] / 2 - lidar.skin,
                          boxes[i, 3:6] * .3)
        columns, beams = _window(lidar, box2lidar, half)
        if not len(columns):
            continue
        part = (columns[:, None], np.arange(*beams)[None])
        met = _slab(rays[part], box2lidar, half)
        met[met > lidar.max_range] = np.inf
        alone[i] = np.isfinite(met).sum()
        closer = met < ranges[part]
        ranges[part] = np.where(closer, met, ranges[part])
        owner[part] = np.where(closer, i, owner[part])
    return ranges, owner, alone


def _window(lidar: Lidar, box2lidar: np.ndarray,
            half: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Columns and beam range that can meet a box."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1)
                      for z in (-1, 1)])
    corners = transform(box2lidar, signs * half)
    flat = np.linalg.norm(corners[:, :2], axis=1)
    low, high = np.deg2rad(lidar.elevation)
    pitch = (high - low) / (lidar.beams - 1)
    centre = box2lidar[:3, 3]
    if np.linalg.norm(centre[:2]) <= np.linalg.norm(half[:2]):
        return np.arange(lidar.columns), (0, lidar.beams)
    # The elevation of a face is extreme at a corner only up to the face's
    # nearest point: bound it with the nearest distance.
    nearest = max(
        np.linalg.norm(centre[:2]) - np.linalg.norm(half[:2]), 1e-3)
    top, bottom = corners[:, 2].max(), corners[:, 2].min()
    above = np.arctan2(top, nearest if top > 0 else flat.max())
    below = np.arctan2(bottom, nearest if bottom < 0 else flat.max())
    first = max(0, int(np.ceil((below - low) / pitch)))
    last = min(lidar.beams - 1, int(np.floor((above - low) / pitch)))
    bearing = np.arctan2(centre[1], centre[0])
    spread = np.arctan2(corners[:, 1], corners[:, 0]) - bearing
    spread = (spread + np.pi) % (2 * np.pi) - np.pi
    step = 2 * np.pi / lidar.columns
    left = int(np.ceil((bearing + spread.min() + np.pi) / step))
    right = int(np.floor((bearing + spread.max() + np.pi) / step))
    columns = np.arange(left, right + 1) % lidar.columns
    return columns, (first, max(first, last + 1))


def _slab(rays: np.ndarray, box2lidar: np.ndarray,
          half: np.ndarray) -> np.ndarray:
    """Distance at which each ray from the origin enters a box, or inf."""
    origin = -box2lidar[:3, :3].T @ box2lidar[:3, 3]
    direction = rays @ box2lidar[:3, :3]
    direction = np.where(
        np.abs(direction) < 1e-12, 1e-12, direction)
    one = (-half - origin) / direction
    two = (half - origin) / direction
    enter = np.minimum(one, two).max(-1)
    leave = np.maximum(one, two).min(-1)
    return np.where((enter > 0) & (enter <= leave), enter, np.inf)
