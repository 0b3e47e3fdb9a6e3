"""The camera rig: six nuScenes-like cameras and their calibration.

Camera frame: x right, y down, z forward, metres. Image coordinates are pixel
indices: u = fx x / z + cx is the centre of column u when it is whole, as
nuScenes' calibration is used. The cameras look level up to a small pitch and
do not roll, so that on flat ground a row of an image has one distance.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .geometry import inverse_rigid, rigid

FULL_SIZE = (1600, 900)


@dataclass(frozen=True)
class Camera:
    """One camera.

    Attributes:
        channel: nuScenes name.
        translation: mounting in the ego frame, metres.
        yaw, pitch: viewing direction in the ego frame, radians; yaw to the
            left, pitch downwards.
        focal: fx, fy in pixels.
        principal: cx, cy in pixels.
        image_size: width, height in pixels.
    """
    channel: str
    translation: tuple[float, float, float]
    yaw: float
    pitch: float
    focal: tuple[float, float]
    principal: tuple[float, float]
    image_size: tuple[int, int] = FULL_SIZE

    @cached_property
    def rotation(self) -> tuple[float, ...]:
        """Camera to ego frame as a quaternion (w, x, y, z)."""
        # Axes change (x forward becomes z forward), then pitch, then yaw.
        c, s = np.cos(self.pitch / 2), np.sin(self.pitch / 2)
        w, x, y, z = .5 * np.array([c - s, -c - s, c + s, s - c])
        c, s = np.cos(self.yaw / 2), np.sin(self.yaw / 2)
        turned = np.array(
            [c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w])
        return tuple(turned.tolist())

    @cached_property
    def cam2ego(self) -> np.ndarray:
        """(4, 4) float64."""
        return rigid(self.rotation, self.translation)

    @cached_property
    def cam2img(self) -> np.ndarray:
        """(3, 3) float64 intrinsic matrix."""
        return np.array([[self.focal[0], 0., self.principal[0]],
                         [0., self.focal[1], self.principal[1]],
                         [0., 0., 1.]])

    def global2img(self, ego2global: np.ndarray) -> np.ndarray:
        """(3, 4): global points to (u w, v w, w), w the depth in metres.

        Args:
            ego2global: (4, 4) pose at the exposure.
        """
        global2cam = inverse_rigid(ego2global @ self.cam2ego)
        return self.cam2img @ global2cam[:3]

    def resized(self, image_size: tuple[int, int]) -> 'Camera':
        """The camera whose image is this one's, area-averaged.

        An averaged pixel's centre lies between the centres it averages, hence
        the halves: cx' = (cx + 1/2) scale - 1/2.

        Raises:
            ValueError: on a size below 1.
        """
        if min(image_size) < 1:
            raise ValueError(
                f'image size must be positive, got {tuple(image_size)}; give '
                'width, height in pixels')
        scale = [
            new / old
            for new, old in zip(image_size, self.image_size, strict=True)
        ]
        fx, fy = (f * s for f, s in zip(self.focal, scale, strict=True))
        cx, cy = ((c + .5) * s - .5
                  for c, s in zip(self.principal, scale, strict=True))
        return replace(
            self,
            focal=(fx, fy),
            principal=(cx, cy),
            image_size=(int(image_size[0]), int(image_size[1])))


def _camera(channel: str, x: float, y: float, z: float, yaw: float,
            pitch: float, focal: float, cx: float, cy: float) -> Camera:
    """Angles in degrees."""
    return Camera(channel, (x, y, z), float(np.deg2rad(yaw)),
                  float(np.deg2rad(pitch)), (focal, focal), (cx, cy))


# Rounded from the calibration of a real nuScenes car.
RIG = (
    _camera('CAM_FRONT', 1.70, .02, 1.51, .3, .32, 1266., 816., 491.),
    _camera('CAM_FRONT_RIGHT', 1.55, -.49, 1.50, -56.4, .78, 1261., 808.,
            495.),
    _camera('CAM_BACK_RIGHT', 1.01, -.48, 1.56, -110.8, .93, 1260., 807.,
            501.),
    _camera('CAM_BACK', .03, 0., 1.58, 179.9, -.96, 809., 829., 482.),
    _camera('CAM_BACK_LEFT', 1.04, .48, 1.59, 108.6, .92, 1257., 792., 493.),
    _camera('CAM_FRONT_LEFT', 1.52, .49, 1.51, 55.2, -.14, 1273., 827., 480.),
)


def camera_rig(image_size: tuple[int, int] = FULL_SIZE) -> tuple[Camera, ...]:
    """The six cameras, clockwise from the front.

    Args:
        image_size: width, height in pixels; the calibration follows it.
    """
    return tuple(camera.resized(image_size) for camera in RIG)
