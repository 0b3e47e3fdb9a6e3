"""A spinning LiDAR, ray-cast against boxes and flat ground.

The sensor frame is nuScenes' LiDAR frame: x right, y forward, z up. A scan is
taken at one instant (no motion during the spin).
"""

from dataclasses import dataclass

import numpy as np

from .geometry import inverse_rigid, rigid, yaw_quaternion


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


def scan(lidar: Lidar, boxes: np.ndarray, reflectivity: np.ndarray,
         ego2global: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cast all rays of one scan.

    As in nuScenes, points hold no time: that of a sweep is the difference of
    the timestamps in the tables.

    Args:
        boxes: (N, 7) centre, length, width, height in metres, yaw in radians;
            global frame.
        reflectivity: (N,) mean intensity, 0 to 255.
        ego2global: (4, 4).

    Returns:
        (P, 5) float32 x, y, z, intensity, ring; sensor frame.

    Note:
        Deterministic for a given state of ``rng``.
    """
    lidar2global = ego2global @ lidar.lidar2ego
    rays = lidar.directions()
    ranges, owner = _cast(lidar, rays, boxes, lidar2global)
    hit = np.isfinite(ranges) & (rng.random(ranges.shape) >= lidar.dropout)
    count = int(hit.sum())
    noise = np.clip(rng.normal(0., 1., count), -2., 2.) * lidar.noise
    points = np.empty((count, 5), dtype=np.float32)
    points[:, :3] = rays[hit] * (ranges[hit] + noise)[:, None]
    # Index -1, the ground, picks the last entry.
    mean = np.append(reflectivity, 8.)[owner[hit]]
    points[:, 3] = np.clip(mean * rng.uniform(.4, 1.6, count), 0, 255).round()
    points[:, 4] = np.nonzero(hit)[1]
    return points


def hits(lidar: Lidar, boxes: np.ndarray,
         ego2global: np.ndarray) -> np.ndarray:
    """(N,) how many rays of a scan meet each (N, 7) box first."""
    owner = _cast(lidar, lidar.directions(), boxes,
                  ego2global @ lidar.lidar2ego)[1]
    return np.bincount(owner[owner >= 0].ravel(), minlength=len(boxes))


def _cast(lidar: Lidar, rays: np.ndarray, boxes: np.ndarray,
          lidar2global: np.ndarray) -> tuple[np.ndarray, ...]:
    """Nearest range and owner of each ray.

    Returns:
        (columns, beams) ranges, inf where nothing is met; (columns, beams)
        owner, -1 for ground or nothing.
    """
    down = rays @ lidar2global[2, :3]
    with np.errstate(divide='ignore'):
        ranges = np.where(down < 0, -lidar2global[2, 3] / down, np.inf)
    ranges[ranges > lidar.max_range] = np.inf
    owner = np.full(ranges.shape, -1)
    global2lidar = inverse_rigid(lidar2global)
    cos, sin = np.cos(boxes[:, 6]), np.sin(boxes[:, 6])
    box2lidar = np.zeros((len(boxes), 4, 4))
    box2lidar[:, 0, 0] = box2lidar[:, 1, 1] = cos
    box2lidar[:, 1, 0], box2lidar[:, 0, 1] = sin, -sin
    box2lidar[:, 2, 2] = box2lidar[:, 3, 3] = 1.
    box2lidar[:, :3, 3] = boxes[:, :3]
    box2lidar = global2lidar @ box2lidar
    half = np.maximum(boxes[:, 3:6] / 2 - lidar.skin, boxes[:, 3:6] * .3)
    reach = np.linalg.norm(half, axis=1)
    away = np.linalg.norm(box2lidar[:, :3, 3], axis=1)
    near = away - reach < lidar.max_range
    left, right, first, stop = _windows(lidar, box2lidar, half)
    for i in np.nonzero(near & (left <= right) & (first < stop))[0]:
        columns = np.arange(left[i], right[i] + 1) % lidar.columns
        part = (columns[:, None], np.arange(first[i], stop[i])[None])
        met = _slab(rays[part], box2lidar[i], half[i])
        met[met > lidar.max_range] = np.inf
        closer = met < ranges[part]
        ranges[part] = np.where(closer, met, ranges[part])
        owner[part] = np.where(closer, i, owner[part])
    return ranges, owner


_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1)
                     for z in (-1, 1)])


def _windows(lidar: Lidar, box2lidar: np.ndarray,
             half: np.ndarray) -> tuple[np.ndarray, ...]:
    """First and last column, first beam and the one after the last, that can
    meet each of (N,) boxes."""
    corners = (box2lidar[:, None, :3, :3] @ (
        _CORNERS * half[:, None])[..., None])[..., 0]
    corners = corners + box2lidar[:, None, :3, 3]
    flat = np.linalg.norm(corners[..., :2], axis=-1).max(1)
    low, high = np.deg2rad(lidar.elevation)
    pitch = (high - low) / (lidar.beams - 1)
    centre = np.linalg.norm(box2lidar[:, :2, 3], axis=1)
    reach = np.linalg.norm(half[:, :2], axis=1)
    # The elevation of a face is extreme at a corner only up to the face's
    # nearest point: bound it with the nearest distance.
    nearest = np.maximum(centre - reach, 1e-3)
    top, bottom = corners[..., 2].max(1), corners[..., 2].min(1)
    above = np.arctan2(top, np.where(top > 0, nearest, flat))
    below = np.arctan2(bottom, np.where(bottom < 0, nearest, flat))
    first = np.maximum(0, np.ceil((below - low) / pitch)).astype(int)
    stop = np.minimum(lidar.beams,
                      np.floor((above - low) / pitch) + 1).astype(int)
    bearing = np.arctan2(box2lidar[:, 1, 3], box2lidar[:, 0, 3])
    spread = np.arctan2(corners[..., 1], corners[..., 0]) - bearing[:, None]
    spread = (spread + np.pi) % (2 * np.pi) - np.pi
    step = 2 * np.pi / lidar.columns
    left = np.ceil((bearing + spread.min(1) + np.pi) / step).astype(int)
    right = np.floor((bearing + spread.max(1) + np.pi) / step).astype(int)
    # The sensor above or within a box's outline may see it anywhere.
    over = centre <= reach
    return (np.where(over, 0, left), np.where(over, lidar.columns - 1, right),
            np.where(over, 0, first), np.where(over, lidar.beams, stop))


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
