"""The ego vehicle's CAN bus messages, in the form of nuScenes' expansion.

Fields, units, rates, ranges and resolutions follow the devkit's
``can_bus/README.md``; the vehicle is a Renault Zoe. Vectors are in the ego
frame: x forward, y left, z up. Angles and rates about z are positive to the
left: steering, yaw rate, lateral acceleration. Accelerations are what a
sensor feels, so their z is +9.81 m/s^2 on level ground.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..files import complete_file

if TYPE_CHECKING:
    from .world import Motion

# Microseconds between messages.
PERIODS_US = dict(
    ms_imu=10_000,
    pose=20_000,
    steeranglefeedback=10_000,
    vehicle_monitor=500_000,
    zoe_veh_info=10_000,
    zoesensors=1_250)
GRAVITY = 9.81
# Wheelbase, distance between the wheels of an axle, wheel radius; metres.
WHEELBASE, TRACK, WHEEL_RADIUS = 2.588, 1.51, .305
# Steering wheel angle over the road wheels' angle.
STEERING_RATIO = 15.
# Curves that are tighter than this are turns at junctions, 1/m.
_TURN = 1 / 40
# Deceleration without pedals, acceleration of a pushed pedal, m/s^2; motor
# torque for 1 m/s^2, Nm.
_COAST, _FULL_THROTTLE, _FULL_BRAKE, _TORQUE = .5, 3., 6., 49.
_STEER_OFFSET = -12.6

Columns = dict[str, np.ndarray]


def write_can_bus(root: Path, scene_name: str, start_us: int,
                  duration: float,
                  ego_motion: Callable[[np.ndarray], 'Motion'],
                  route: np.ndarray) -> None:
    """Write ``can_bus/{scene_name}_{message}.json`` for all messages.

    Args:
        root: data root.
        scene_name: official name, ``scene-`` and four digits.
        start_us: timestamp at time 0, microseconds.
        duration: seconds; messages come from time 0 to here.
        ego_motion: of the rear axle in the global frame, at (T,) seconds.
        route: (R, 2) x, y of the way that the vehicle is to follow, global
            frame, from about 50 m before the scene to 50 m after it.

    Raises:
        ValueError: on a name that the devkit cannot read, or no route.
    """
    if not re.fullmatch(r'scene-\d{4}', scene_name):
        raise ValueError('the CAN bus reader takes scene names like '
                         f'scene-0061, got {scene_name!r}')
    route = np.asarray(route, dtype=np.float64)
    if route.ndim != 2 or route.shape[1] != 2 or not len(route):
        raise ValueError(f'route must be (R, 2), R > 0, got {route.shape}')
    columns = can_messages(start_us, duration, ego_motion)
    contents = {name: _rows(values) for name, values in columns.items()}
    contents['route'] = route.tolist()
    contents['meta'] = {name: _stats(c) for name, c in columns.items()}
    for name, content in contents.items():
        path = Path(root) / 'can_bus' / f'{scene_name}_{name}.json'
        with complete_file(path, 'w') as file:
            json.dump(content, file)


def can_messages(
        start_us: int, duration: float,
        ego_motion: Callable[[np.ndarray],
                             'Motion']) -> dict[str, Columns]:
    """Fields of all messages, each (T,) or (T, D), by message."""
    make = dict(
        ms_imu=_ms_imu,
        pose=_pose,
        steeranglefeedback=_steeranglefeedback,
        vehicle_monitor=_vehicle_monitor,
        zoe_veh_info=_zoe_veh_info,
        zoesensors=_zoesensors)
    messages = {}
    for name, period in PERIODS_US.items():
        since = np.arange(0, round(duration * 1e6) + 1, period)
        columns = make[name](ego_motion(since / 1e6), period / 1e6)
        messages[name] = columns | dict(utime=start_us + since)
    return messages


def steering_wheel(motion: 'Motion') -> np.ndarray:
    """(T,) angle of the steering wheel by the bicycle model, radians."""
    return STEERING_RATIO * np.arctan(WHEELBASE * motion.curvature)


def _pose(motion: 'Motion', step: float) -> Columns:
    zero = np.zeros(len(motion.speed))
    return dict(
        accel=_felt(motion),
        orientation=_orientation(motion),
        pos=np.column_stack([motion.xy, zero]),
        rotation_rate=_rotation_rate(motion),
        vel=np.stack([motion.speed, zero, zero], -1))


def _ms_imu(motion: 'Motion', step: float) -> Columns:
    return dict(
        linear_accel=_felt(motion),
        q=_orientation(motion),
        rotation_rate=_rotation_rate(motion))


def _felt(motion: 'Motion') -> np.ndarray:
    sideways = motion.speed**2 * motion.curvature
    up = np.full(len(sideways), GRAVITY)
    return np.stack([motion.acceleration, sideways, up], -1)


def _orientation(motion: 'Motion') -> np.ndarray:
    half = motion.heading / 2
    zero = np.zeros(len(half))
    return np.stack([np.cos(half), zero, zero, np.sin(half)], -1)


def _rotation_rate(motion: 'Motion') -> np.ndarray:
    zero = np.zeros(len(motion.speed))
    return np.stack([zero, zero, motion.speed * motion.curvature], -1)


def _steeranglefeedback(motion: 'Motion', step: float) -> Columns:
    return dict(value=steering_wheel(motion))


def _vehicle_monitor(motion: 'Motion', step: float) -> Columns:
    count = len(motion.speed)
    throttle, brake, _ = _pedals(motion)
    steering = np.degrees(steering_wheel(motion))
    left, right = _wheel_speeds(motion)[2:]
    return dict(
        available_distance=np.full(count, 120.),
        battery_level=np.full(count, 80.),
        brake=np.round(126 * brake).astype(int),
        brake_switch=np.where(brake > 0, 2, 1),
        gear_position=np.full(count, 7),
        left_signal=(motion.curvature > _TURN).astype(int),
        rear_left_rpm=left,
        rear_right_rpm=right,
        right_signal=(motion.curvature < -_TURN).astype(int),
        steering=_quantise(steering, .1),
        steering_speed=np.clip(_slope(steering, step), -465., 393.),
        throttle=np.round(1000 * throttle).astype(int),
        vehicle_speed=_quantise(3.6 * motion.speed, .01),
        yaw_rate=_quantise(
            np.degrees(motion.speed * motion.curvature), .1))


def _zoesensors(motion: 'Motion', step: float) -> Columns:
    throttle, brake, _ = _pedals(motion)
    steering = np.clip(steering_wheel(motion) / 7.7, -1., 1.)
    return dict(
        brake_sensor=.166 + (.631 - .166) * brake,
        steering_sensor=(.252 + .176 + (.252 - .176) * steering) / 2,
        throttle_sensor=.105 + (.411 - .105) * throttle)


def _zoe_veh_info(motion: 'Motion', step: float) -> Columns:
    count = len(motion.speed)
    throttle, _, regen = _pedals(motion)
    torque = _quantise(
        np.clip(_TORQUE * motion.acceleration, -400., 1647.), .5)
    steering = np.degrees(steering_wheel(motion))
    wheels = _wheel_speeds(motion)
    # Centimetres, modulo more or less a turn of a wheel.
    mean = np.abs(motion.speed[1:] + motion.speed[:-1]) / 2
    odometer = 100 * step * np.concatenate([[0.], np.cumsum(mean)])
    return dict(
        FL_wheel_speed=wheels[0],
        FR_wheel_speed=wheels[1],
        RL_wheel_speed=wheels[2],
        RR_wheel_speed=wheels[3],
        left_solar=np.full(count, 80),
        longitudinal_accel=_quantise(motion.acceleration, .05),
        meanEffTorque=torque,
        odom=(odometer % 125).astype(int),
        odom_speed=3.6 * np.abs(motion.speed),
        pedal_cc=1000 * throttle,
        regen=100 * regen,
        requestedTorqueAfterProc=torque,
        right_solar=np.full(count, 80),
        steer_corrected=steering,
        steer_offset_can=np.full(count, _STEER_OFFSET),
        steer_raw=steering + _STEER_OFFSET,
        transversal_accel=_quantise(
            motion.speed**2 * motion.curvature / GRAVITY, .004))


def _pedals(motion: 'Motion') -> tuple[np.ndarray, ...]:
    """(T,) throttle, brake and coasting brake, 0 to 1.

    Whoever stands holds the brake.
    """
    wanted = motion.acceleration
    stands = (motion.speed == 0) & (wanted <= 0)
    throttle = np.clip(wanted / _FULL_THROTTLE, 0., 1.)
    brake = np.clip((-wanted - _COAST) / _FULL_BRAKE, 0., 1.)
    regen = np.clip(-wanted / _COAST, 0., 1.)
    return throttle, np.where(stands, .2, brake), np.where(stands, 0., regen)


def _wheel_speeds(motion: 'Motion') -> list[np.ndarray]:
    """Front left, front right, rear left, rear right; turns a minute."""
    left = 1 - motion.curvature * TRACK / 2
    right = 1 + motion.curvature * TRACK / 2
    ahead = motion.curvature * WHEELBASE
    turns = np.abs(motion.speed) * 60 / (2 * np.pi * WHEEL_RADIUS)
    return [
        _quantise(turns * share, .0417)
        for share in (np.hypot(left, ahead), np.hypot(right, ahead),
                      np.abs(left), np.abs(right))
    ]


def _quantise(values: np.ndarray, resolution: float) -> np.ndarray:
    """Multiples of ``resolution``, free of trailing noise."""
    return np.round(np.round(values / resolution) * resolution, 4)


def _slope(values: np.ndarray, step: float) -> np.ndarray:
    if len(values) < 2:
        return np.zeros(len(values))
    return np.gradient(values, step)


def _rows(columns: Columns) -> list[dict]:
    """One message a time; keys in the official order, which is sorted."""
    keys = sorted(columns)
    values = [columns[key].tolist() for key in keys]
    return [
        dict(zip(keys, row, strict=True))
        for row in zip(*values, strict=True)
    ]


def _stats(columns: Columns) -> dict:
    """Summary of one message for ``meta``."""
    utime = columns['utime']
    timespan = float(utime[-1] - utime[0]) / 1e6
    summary = {}
    for key in sorted(columns):
        values = columns[key].astype(np.float64)
        changes = np.diff(values, axis=0) if len(values) > 1 else values * 0
        summary[key] = {
            prefix + name: getattr(data, name)(axis=0).tolist()
            for prefix, data in (('', values), ('diff_', changes))
            for name in ('max', 'mean', 'min', 'std')
        }
    return dict(
        message_count=len(utime),
        message_freq=(len(utime) - 1) / timespan if timespan else 0.,
        timespan=timespan,
        var_stats=summary)
