"""The vehicle's state comes from the right CAN messages."""

import json

import numpy as np
import pytest

from mmturbox.datasets import DataError
from mmturbox.datasets.nuscenes.ego import CanBus, can_bus_vector, ego_future
from mmturbox.datasets.nuscenes.poses import rigid_many

SCENE = 'scene-0061'
BEGIN = 1_532_402_927_000_000


def pose_messages(count=200):
    """50 Hz; each number tells the message."""
    return [
        dict(
            accel=[i, .1, 9.8],
            orientation=[1, 0, 0, 0],
            pos=[i, 0, 0],
            rotation_rate=[0, 0, i],
            utime=BEGIN + 20_000 * i,
            vel=[i, 0, 0]) for i in range(count)
    ]


def steering_messages(count=400):
    return [
        dict(utime=BEGIN + 10_000 * i, value=i / 100) for i in range(count)
    ]


def write(root, scene=SCENE, pose=None, steering=None):
    folder = root / 'can_bus'
    folder.mkdir(exist_ok=True)
    for name, messages in (('pose', pose), ('steeranglefeedback', steering)):
        if messages is not None:
            (folder / f'{scene}_{name}.json').write_text(json.dumps(messages))


@pytest.fixture
def root(tmp_path):
    write(tmp_path, pose=pose_messages(), steering=steering_messages())
    return tmp_path


def test_state_is_of_the_next_and_of_the_nearest_message(root):
    # 15 ms after message 10, so 11 is nearest; steering 22 is at 220 ms.
    motion, status = CanBus(root).state(SCENE, BEGIN + 215_000)
    np.testing.assert_allclose(motion, [11, .1, 9.8, 0, 0, 11, 11, 0, 0])
    np.testing.assert_allclose(
        status, [11, .1, 9.8, 0, 0, 11, 11, 0, 0, .22], rtol=1e-6)
    assert status.dtype == np.float32


@pytest.mark.parametrize('late, message', [(-1, 10), (0, 11), (5_000, 11)])
def test_motion_is_where_bevformers_search_ends(root, late, message):
    """Its loop leaves at the first message after the sample."""
    motion, _ = CanBus(root).state(SCENE, BEGIN + 200_000 + late)
    assert motion[0] == message


@pytest.mark.parametrize('time, message', [(-10**6, 0), (10**8, 199)])
def test_outside_of_the_messages_the_first_or_last_counts(
        root, time, message):
    motion, status = CanBus(root).state(SCENE, BEGIN + time)
    assert motion[0] == status[0] == message


def test_no_folder_no_file_or_an_excluded_log_give_zeros(root, tmp_path):
    # The devkit lists scene-0161 among those without usable messages.
    write(root, 'scene-0161', pose_messages(), steering_messages())
    write(root, 'scene-0002', pose=pose_messages())
    buses = [(CanBus(tmp_path / 'none'), SCENE), (CanBus(root), 'scene-0001'),
             (CanBus(root), 'scene-0161')]
    for bus, scene in buses:
        motion, status = bus.state(scene, BEGIN)
        assert not motion.any() and not status.any()
        assert motion.shape == (9, ) and status.shape == (10, )
    motion, status = CanBus(root).state('scene-0002', BEGIN + 100_000)
    assert motion[0] == 6 and not status.any()
    # Complete, half, without and excluded.
    scenes = [SCENE, 'scene-0002', 'scene-0001', 'scene-0161']
    assert CanBus(root).lacking(scenes) == scenes[1:3]


def test_broken_messages_are_named(root):
    (root / 'can_bus' / f'{SCENE}_pose.json').write_text('[{"utime": 3}]')
    with pytest.raises(DataError, match='scene-0061_pose.json.*CAN bus'):
        CanBus(root).state(SCENE, BEGIN)


def test_fingerprint_tells_of_new_messages(root):
    before = CanBus(root).fingerprint()
    assert before == CanBus(root).fingerprint()
    write(root, 'scene-0002', pose=pose_messages())
    assert CanBus(root).fingerprint() != before


@pytest.mark.parametrize('degrees', [0, 30, 180, 200, 359])
def test_can_bus_vector_has_bevformers_layout(degrees):
    half = np.radians(degrees) / 2
    pose = dict(
        translation=[1., 2., 3.],
        rotation=[float(np.cos(half)), 0., 0.,
                  float(np.sin(half))])
    vector = can_bus_vector(pose, np.arange(9.))
    assert vector.shape == (18, ) and vector.dtype == np.float64
    assert vector[:3].tolist() == [1, 2, 3]
    assert vector[3:7].tolist() == pose['rotation']
    assert vector[7:16].tolist() == list(range(9))
    assert vector[16] == pytest.approx(np.radians(degrees), abs=1e-6)
    assert vector[17] == pytest.approx(degrees, abs=1e-6)


class Drive:
    """A vehicle that turns with a given sideways speed, LiDAR turned by 90
    degrees as on the real one."""

    def __init__(self, side, count):
        half = np.sqrt(.5)
        self.samples = [
            dict(next=str(i + 1) if i + 1 < count else '',
                 data=dict(LIDAR_TOP=str(i))) for i in range(count)
        ]
        self.poses = [
            dict(rotation=[1, 0, 0, 0], translation=[100 + 3 * i, side * i, 0])
            for i in range(count)
        ]
        self.sensor = dict(
            rotation=[half, 0, 0, -half], translation=[.9, 0, 1.8])

    def get(self, table, token):
        if table == 'sample_data':
            return dict(ego_pose_token=token, calibrated_sensor_token=token)
        if table == 'calibrated_sensor':
            return self.sensor
        return (self.samples if table == 'sample' else self.poses)[int(token)]


@pytest.mark.parametrize('side, count, command', [
    (.4, 9, 1), (-.4, 9, 0), (.3, 9, 2), (.4, 4, 2), (0, 1, 2),
    (-2.01, 2, 0),
    (1.99, 2, 2),
])
def test_command_is_right_left_or_straight_by_the_last_place(
        side, count, command):
    drive = Drive(side, count)
    future = ego_future(drive, drive.samples[0])
    assert future['gt_ego_fut_cmd'].tolist() == np.eye(3)[command].tolist()
    steps = min(count - 1, 6)
    assert future['gt_ego_fut_masks'].tolist() == [1.] * steps + [0.] * (
        6 - steps)
    # Forward is y in the lidar frame, left is -x.
    np.testing.assert_allclose(
        future['gt_ego_fut_trajs'][:steps],
        np.tile([-side, 3.], (steps, 1)),
        atol=1e-5)


def test_rotation_is_that_of_the_devkits_quaternion():
    from pyquaternion import Quaternion
    for q in ([.3, .1, -.5, .8], [1, 0, 0, 0], [0, 0, 1, 0]):
        np.testing.assert_allclose(
            rigid_many([q], [[0, 0, 0]])[0, :3, :3],
            Quaternion(q).rotation_matrix,
            atol=1e-12)
