"""The synthetic CAN bus, read by the official reader."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from mmturbox.datasets.synthetic.can_bus import (
    GRAVITY,
    PERIODS_US,
    WHEEL_RADIUS,
    can_messages,
    write_can_bus,
)
from mmturbox.datasets.synthetic.paths import ArcPath

SCENE = 'scene-0061'
START_US = 1_532_402_927_647_951
DURATION = 10.
# Straight on, a left turn of 12 m radius, straight, a wide bend to the right.
WAY = ArcPath((800., 700., .4), ((40., 0.), (18.8, 1 / 12.), (10., 0.),
                                 (60., -1 / 80.), (200., 0.)))
FIRST = 20.
FIELDS = {
    'ms_imu': {'linear_accel': 3, 'q': 4, 'rotation_rate': 3},
    'pose': {
        'accel': 3, 'orientation': 4, 'pos': 3, 'rotation_rate': 3, 'vel': 3
    },
    'steeranglefeedback': {'value': 0},
    'vehicle_monitor': dict.fromkeys(
        ('available_distance', 'battery_level', 'brake', 'brake_switch',
         'gear_position', 'left_signal', 'rear_left_rpm', 'rear_right_rpm',
         'right_signal', 'steering', 'steering_speed', 'throttle',
         'vehicle_speed', 'yaw_rate'), 0),
    'zoesensors': dict.fromkeys(
        ('brake_sensor', 'steering_sensor', 'throttle_sensor'), 0),
    'zoe_veh_info': dict.fromkeys(
        ('FL_wheel_speed', 'FR_wheel_speed', 'RL_wheel_speed',
         'RR_wheel_speed', 'left_solar', 'longitudinal_accel',
         'meanEffTorque', 'odom', 'odom_speed', 'pedal_cc', 'regen',
         'requestedTorqueAfterProc', 'right_solar', 'steer_corrected',
         'steer_offset_can', 'steer_raw', 'transversal_accel'), 0),
}


def ego_motion(times):
    """Speeds up for five seconds, then brakes."""
    times = np.asarray(times, dtype=np.float64)
    late = np.maximum(0., times - 5.)
    acceleration = np.where(times < 5., 1., -2.)
    speed = 5. + np.minimum(times, 5.) - 2. * late
    s = FIRST + 5. * times + np.minimum(times, 5.)**2 / 2 + np.where(
        times < 5., 0., 5. * late - late**2)
    stopped = speed <= 0
    speed, acceleration = np.where(stopped, 0., speed), np.where(
        stopped, 0., acceleration)
    s = np.where(stopped, FIRST + 62.5, s)
    xy, heading = WAY.at(s)
    return SimpleNamespace(
        xy=xy,
        heading=heading,
        speed=speed,
        acceleration=acceleration,
        curvature=WAY.curvature(s))


ROUTE = WAY.at(np.arange(-30., 160., .3))[0]


@pytest.fixture(scope='module')
def can(tmp_path_factory):
    from nuscenes.can_bus.can_bus_api import NuScenesCanBus
    root = tmp_path_factory.mktemp('can')
    write_can_bus(root, SCENE, START_US, DURATION, ego_motion, ROUTE)
    return NuScenesCanBus(str(root))


def column(can, message, key):
    return np.array([m[key] for m in can.get_messages(SCENE, message)])


class TestFormat:

    @pytest.mark.parametrize('name', FIELDS)
    def test_fields_and_their_sizes_are_the_official_ones(self, can, name):
        messages = can.get_messages(SCENE, name)
        for message in (messages[0], messages[-1]):
            sizes = {
                k: len(v) if isinstance(v, list) else 0
                for k, v in message.items()
            }
            assert sizes == FIELDS[name] | {'utime': 0}
            assert type(message['utime']) is int

    def test_pose_fields_come_in_the_official_order(self, can):
        # BEVFormer's info files concatenate them in the order of the file.
        assert list(can.get_messages(SCENE, 'pose')[0]) == [
            'accel', 'orientation', 'pos', 'rotation_rate', 'utime', 'vel'
        ]

    @pytest.mark.parametrize('name, rate', [
        ('ms_imu', 100), ('pose', 50), ('steeranglefeedback', 100),
        ('vehicle_monitor', 2), ('zoesensors', 800), ('zoe_veh_info', 100)
    ])
    def test_messages_cover_the_scene_at_their_rate(self, can, name, rate):
        times = column(can, name, 'utime')
        assert times[0] == START_US
        assert times[-1] == START_US + DURATION * 1e6
        assert (np.diff(times) == 1e6 / rate).all()

    def test_values_are_finite(self, can):
        for name, fields in FIELDS.items():
            for key in fields:
                assert np.isfinite(column(can, name, key)).all(), (name, key)

    def test_counts_and_flags_are_integers(self, can):
        for name, keys in (('vehicle_monitor',
                            ('brake', 'brake_switch', 'gear_position',
                             'left_signal', 'right_signal', 'throttle')),
                           ('zoe_veh_info',
                            ('left_solar', 'odom', 'right_solar'))):
            for key in keys:
                assert column(can, name, key).dtype == np.int64, key

    def test_meta_sums_up_each_message(self, can, capsys):
        meta = can.get_messages(SCENE, 'meta')
        assert set(meta) == set(FIELDS)
        assert meta['pose']['message_count'] == 501
        assert meta['pose']['message_freq'] == pytest.approx(50.)
        assert meta['pose']['timespan'] == pytest.approx(DURATION)
        speed = column(can, 'pose', 'vel')[:, 0]
        stats = meta['pose']['var_stats']['vel']
        assert stats['max'][0] == speed.max()
        assert stats['diff_min'][0] == pytest.approx(np.diff(speed).min())
        can.print_all_message_stats(SCENE)
        can.print_message_stats(SCENE, 'zoesensors')
        assert 'throttle_sensor' in capsys.readouterr().out

    def test_same_motion_gives_the_same_bytes(self, can, tmp_path):
        write_can_bus(tmp_path, SCENE, START_US, DURATION, ego_motion, ROUTE)
        files = sorted((tmp_path / 'can_bus').iterdir())
        assert len(files) == len(FIELDS) + 2
        for file in files:
            with open(f'{can.can_dir}/{file.name}', 'rb') as first:
                assert file.read_bytes() == first.read()
                assert b'NaN' not in file.read_bytes()
                json.loads(file.read_text())

    @pytest.mark.parametrize('name', ['scene-61', 'scene-00611', 'x'])
    def test_a_name_that_the_reader_refuses_is_refused(self, tmp_path, name):
        with pytest.raises(ValueError, match='scene-0061'):
            write_can_bus(tmp_path, name, START_US, 1., ego_motion, ROUTE)
        assert not (tmp_path / 'can_bus').exists()

    def test_a_missing_route_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match='route'):
            write_can_bus(tmp_path, SCENE, START_US, 1., ego_motion,
                          np.zeros((0, 2)))


class TestRoute:

    def test_poses_follow_the_route(self, can):
        route, pose = can.get_pose_and_route(SCENE)
        np.testing.assert_allclose(route, ROUTE)
        assert len(pose) == 501
        assert can.list_misaligned_routes(1.) == []

    def test_the_devkit_plots_it(self, can, monkeypatch, tmp_path):
        import matplotlib
        previous = matplotlib.get_backend()
        matplotlib.use('Agg')
        import matplotlib.pyplot as plt
        monkeypatch.setattr(plt, 'show', lambda: None)
        can.plot_baseline_route(SCENE, str(tmp_path / 'route.png'))
        can.plot_message_data(SCENE, 'pose', 'accel', 1,
                              str(tmp_path / 'accel.png'))
        plt.close('all')
        matplotlib.use(previous)
        assert {p.name for p in tmp_path.iterdir()
                } == {'route.png', 'accel.png'}


class TestMotion:

    def test_poses_are_those_of_the_vehicle(self, can):
        times = (column(can, 'pose', 'utime') - START_US) / 1e6
        motion = ego_motion(times)
        pos = column(can, 'pose', 'pos')
        np.testing.assert_allclose(pos[:, :2], motion.xy)
        assert (pos[:, 2] == 0).all()
        w, x, y, z = column(can, 'pose', 'orientation').T
        np.testing.assert_allclose(
            np.exp(2j * np.arctan2(z, w)), np.exp(1j * motion.heading))
        assert not x.any() and not y.any()

    def test_velocity_integrates_to_the_position(self, can):
        pos = column(can, 'pose', 'pos')[:, :2]
        speed = column(can, 'pose', 'vel')[:, 0]
        w, _, _, z = column(can, 'pose', 'orientation').T
        yaw = 2 * np.arctan2(z, w)
        velocity = speed[:, None] * np.stack([np.cos(yaw), np.sin(yaw)], -1)
        moved = np.cumsum((velocity[1:] + velocity[:-1]) / 2 * .02, 0)
        np.testing.assert_allclose(pos[1:] - pos[0], moved, atol=.05)

    def test_yaw_rate_integrates_to_the_yaw(self, can):
        rate = column(can, 'ms_imu', 'rotation_rate')
        w, _, _, z = column(can, 'ms_imu', 'q').T
        yaw = np.unwrap(2 * np.arctan2(z, w))
        assert yaw.max() - yaw[0] > 1.
        moved = np.cumsum((rate[1:, 2] + rate[:-1, 2]) / 2 * .01)
        np.testing.assert_allclose(yaw[1:] - yaw[0], moved, atol=.02)
        assert not rate[:, :2].any()

    def test_acceleration_integrates_to_the_speed(self, can):
        felt = column(can, 'pose', 'accel')
        speed = column(can, 'pose', 'vel')[:, 0]
        gained = np.cumsum((felt[1:, 0] + felt[:-1, 0]) / 2 * .02)
        np.testing.assert_allclose(speed[1:] - speed[0], gained, atol=.05)

    def test_curves_are_felt_sideways(self, can):
        felt = column(can, 'pose', 'accel')[:, 1]
        speed = column(can, 'pose', 'vel')[:, 0]
        rate = column(can, 'pose', 'rotation_rate')[:, 2]
        assert felt.max() > 1.
        np.testing.assert_allclose(felt, speed * rate)

    @pytest.mark.parametrize('message, key', [('pose', 'accel'),
                                              ('ms_imu', 'linear_accel')])
    def test_gravity_is_felt(self, can, message, key):
        assert (column(can, message, key)[:, 2] == GRAVITY).all()


class TestSigns:
    """The first curve goes to the left."""

    @pytest.fixture
    def left(self, can):
        curvature = {
            name: ego_motion(
                (column(can, name, 'utime') - START_US) / 1e6).curvature
            for name in FIELDS
        }
        return lambda name: curvature[name] > 0

    @pytest.mark.parametrize('message, key', [
        ('steeranglefeedback', 'value'), ('vehicle_monitor', 'steering'),
        ('vehicle_monitor', 'yaw_rate'), ('vehicle_monitor', 'left_signal'),
        ('zoe_veh_info', 'steer_corrected'),
        ('zoe_veh_info', 'transversal_accel')
    ])
    def test_left_is_positive(self, can, left, message, key):
        assert (column(can, message, key)[left(message)] > 0).all()

    def test_right_is_negative(self, can):
        times = (column(can, 'steeranglefeedback', 'utime') - START_US) / 1e6
        right = ego_motion(times).curvature < 0
        assert right.any()
        assert (column(can, 'steeranglefeedback', 'value')[right] < 0).all()

    def test_outer_wheels_turn_faster(self, can, left):
        speed = {
            key: column(can, 'zoe_veh_info', f'{key}_wheel_speed')
            [left('zoe_veh_info')]
            for key in ('FL', 'FR', 'RL', 'RR')
        }
        assert (speed['RR'] > speed['RL']).all()
        assert (speed['FR'] > speed['FL']).all()
        assert (speed['FL'] > speed['RL']).all()


class TestUnits:

    def test_wheels_turn_as_fast_as_the_vehicle_goes(self, can):
        rpm = (column(can, 'zoe_veh_info', 'RL_wheel_speed') +
               column(can, 'zoe_veh_info', 'RR_wheel_speed')) / 2
        speed = column(can, 'zoe_veh_info', 'odom_speed') / 3.6
        np.testing.assert_allclose(
            rpm * 2 * np.pi * WHEEL_RADIUS / 60, speed, atol=.002)

    def test_the_steering_wheel_is_turned_most_of_the_way_round(self, can):
        # A radius of 12 m: 12 degrees at the wheels.
        value = column(can, 'steeranglefeedback', 'value')
        assert value.max() == pytest.approx(
            15 * np.arctan(2.588 / 12), abs=1e-6)
        degrees = column(can, 'vehicle_monitor', 'steering')
        assert degrees.max() == pytest.approx(np.degrees(value.max()), abs=.1)

    def test_speeds_are_in_kilometres_an_hour(self, can):
        speed = column(can, 'vehicle_monitor', 'vehicle_speed')
        assert speed[0] == pytest.approx(18.)
        assert column(can, 'zoe_veh_info', 'odom_speed')[0] == 18.

    @pytest.mark.parametrize('message, key, low, high', [
        ('vehicle_monitor', 'brake', 0, 126),
        ('vehicle_monitor', 'throttle', 0, 1000),
        ('vehicle_monitor', 'steering_speed', -465, 393),
        ('zoesensors', 'brake_sensor', .166, .631),
        ('zoesensors', 'steering_sensor', .176, .252),
        ('zoesensors', 'throttle_sensor', .105, .411),
        ('zoe_veh_info', 'odom', 0, 124),
        ('zoe_veh_info', 'meanEffTorque', -400, 1647),
        ('zoe_veh_info', 'regen', 0, 100),
    ])
    def test_values_stay_in_their_range(self, can, message, key, low, high):
        values = column(can, message, key)
        assert low <= values.min() < values.max() <= high

    def test_pedals_agree_with_the_acceleration(self, can):
        times = (column(can, 'zoesensors', 'utime') - START_US) / 1e6
        brake = column(can, 'zoesensors', 'brake_sensor')
        throttle = column(can, 'zoesensors', 'throttle_sensor')
        faster = times < 5
        assert (throttle[faster] > .105).all() and (brake[faster] ==
                                                    .166).all()
        # Braking, then holding the vehicle.
        assert (throttle[~faster] == .105).all()
        assert (brake[~faster] > .166).all()

    def test_steps_are_those_of_the_bus(self, can):
        for message, key, step in (('vehicle_monitor', 'steering', .1),
                                   ('vehicle_monitor', 'vehicle_speed', .01),
                                   ('zoe_veh_info', 'longitudinal_accel',
                                    .05), ('zoe_veh_info',
                                           'transversal_accel', .004),
                                   ('zoe_veh_info', 'FL_wheel_speed', .0417)):
            values = column(can, message, key)
            np.testing.assert_allclose(
                values, np.round(values / step) * step, atol=1e-4)

    def test_the_odometer_counts_centimetres(self, can):
        odom = column(can, 'zoe_veh_info', 'odom')
        speed = column(can, 'pose', 'vel')[:, 0]
        way = np.trapezoid(speed, dx=.02)
        steps = np.diff(odom) % 125
        assert steps.sum() / 100 == pytest.approx(way, abs=.02)


def test_a_scene_of_an_instant_has_one_message_each():
    for name, columns in can_messages(START_US, 0., ego_motion).items():
        assert {len(v) for v in columns.values()} == {1}, name
    assert set(PERIODS_US) == set(FIELDS)
