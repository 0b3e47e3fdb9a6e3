"""The devkit's prediction code runs on the set and means what it says."""

import pickle

import numpy as np
import pytest
from nuscenes.eval.common.utils import quaternion_yaw
from nuscenes.eval.prediction.data_classes import Prediction
from nuscenes.eval.prediction.metrics import (
    MinADEK,
    MinFDEK,
    MissRateTopK,
    OffRoadRate,
    RowMean,
)
from nuscenes.map_expansion.map_api import NuScenesMap
from nuscenes.prediction import PredictHelper
from nuscenes.prediction.input_representation import static_layers
from nuscenes.prediction.input_representation.agents import (
    AgentBoxesWithFadedHistory,
)
from nuscenes.prediction.input_representation.combinators import Rasterizer
from nuscenes.prediction.input_representation.interface import (
    InputRepresentation,
)
from nuscenes.prediction.models.physics import (
    ConstantVelocityHeading,
    PhysicsOracle,
)
from pyquaternion import Quaternion

from mmturbox.datasets.synthetic.tables import LOCATION

# Seconds; the scenes are too short for the challenge's six.
HORIZON = 2.


@pytest.fixture(scope='module')
def helper(nusc):
    return PredictHelper(nusc)


@pytest.fixture(scope='module')
def only_map():
    """The code loads the maps of all four official places."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_layers, 'locations', [LOCATION])
        yield


@pytest.fixture(scope='module')
def drivers(nusc, helper):
    """What drives on the road: (instance, sample, future (4, 2) global)."""
    found = []
    for ann in nusc.sample_annotation:
        names = [
            nusc.get('attribute', t)['name'] for t in ann['attribute_tokens']
        ]
        # Its speed is taken from the key frame before.
        if not ann['prev'] or not {*names} & {
                'vehicle.moving', 'cycle.with_rider'
        }:
            continue
        key = ann['instance_token'], ann['sample_token']
        future = helper.get_future_for_agent(
            *key, HORIZON, in_agent_frame=False)
        if len(future) == 2 * HORIZON:
            found.append((*key, future))
    assert len(found) > 20
    return found


def test_futures_of_the_info_file_are_the_helpers(nusc, helper,
                                                  official_root):
    """Distances covered in each half second: they are the same in the frames
    of the agent and of the LiDAR."""
    checked = 0
    for split in ('train', 'val'):
        with open(official_root / f'nuscenes_infos_{split}.pkl',
                  'rb') as file:
            infos = pickle.load(file)['data_list']
        for info in infos:
            for instance in info['instances']:
                way = helper.get_future_for_agent(
                    instance['instance_token'],
                    info['token'],
                    6.,
                    in_agent_frame=True)
                count = int(instance['gt_agent_fut_masks'].sum())
                assert count == len(way)
                if count:
                    steps = np.diff(np.vstack([[0., 0.], way]), axis=0)
                    # The LiDAR is tilted by less than a degree.
                    np.testing.assert_allclose(
                        np.linalg.norm(
                            instance['gt_agent_fut_trajs'][:count], axis=1),
                        np.linalg.norm(steps, axis=1),
                        atol=5e-3)
                    checked += 1
    assert checked > 300


def test_agents_drive_where_they_head(helper, drivers):
    """In the agent's frame, y is ahead."""
    for instance, sample, _ in drivers:
        way = helper.get_future_for_agent(
            instance, sample, .5, in_agent_frame=True)
        assert way[0, 1] > 0
        assert abs(way[0, 0]) < .2 * way[0, 1] + .05
        heading = helper.get_heading_change_rate_for_agent(instance, sample)
        assert abs(heading) < 1.2
        assert helper.get_velocity_for_agent(instance, sample) < 20.
        assert not abs(
            helper.get_acceleration_for_agent(instance, sample)) > 8.


def test_perfect_predictions_have_no_error_and_stay_on_the_road(
        helper, drivers, only_map):
    mean = [RowMean()]
    off_road = OffRoadRate(helper, mean)
    for instance, sample, future in drivers:
        modes = np.stack([future + [0., 40.], future])
        prediction = Prediction(instance, sample, modes, np.array([.4, .6]))
        for metric in (MinADEK([1, 5], mean), MinFDEK([1, 5], mean)):
            assert not np.any(metric(future, prediction))
        assert not np.any(MissRateTopK([1, 5], mean)(future, prediction))
        # 40 m aside counts where it is all that is said.
        wrong = Prediction(instance, sample, modes[:1], np.array([1.]))
        assert MinADEK([1], mean)(future, wrong)[0, 0] == pytest.approx(40.)
        on_road = Prediction(instance, sample, modes[1:], np.array([1.]))
        assert not np.any(off_road(future, on_road))


def test_physics_baselines_err_little_on_straight_drivers(helper, drivers):
    errors, turns = [], []
    for instance, sample, future in drivers:
        token = f'{instance}_{sample}'
        both = [
            np.linalg.norm(
                model(HORIZON, helper)(token).prediction[0] - future,
                axis=1).mean()
            for model in (ConstantVelocityHeading, PhysicsOracle)
        ]
        assert both[1] <= both[0] + 1e-9
        errors.append(both)
        ann = helper.get_sample_annotation(instance, sample)
        ahead = helper.get_future_for_agent(
            instance, sample, HORIZON, in_agent_frame=False, just_xy=False)
        yaws = np.unwrap([
            quaternion_yaw(Quaternion(a['rotation']))
            for a in (ann, *ahead)
        ])
        turns.append(np.ptp(yaws))
    straight = np.array(errors)[np.array(turns) < .02]
    assert len(straight) > 4
    assert np.median(straight[:, 0]) < .8
    assert np.median(straight[:, 1]) < .5
    assert straight.max() < 6.


def test_input_representation_shows_the_agent_on_its_lane(
        helper, drivers, only_map):
    layers = static_layers.StaticLayerRasterizer(helper)
    agents = AgentBoxesWithFadedHistory(helper, seconds_of_history=1)
    both = InputRepresentation(layers, agents, Rasterizer())
    # Cyclists keep to the side of their lane.
    cars = [
        driver for driver in drivers if helper.get_sample_annotation(
            *driver[:2])['category_name'] == 'vehicle.car'
    ]
    for instance, sample, _ in cars[::len(cars) // 3]:
        image = both.make_input_representation(instance, sample)
        # 40 m ahead, 10 m behind, 25 m to both sides, 0.1 m each.
        assert image.shape == (500, 500, 3) and image.dtype == np.uint8
        assert np.array_equal(image[400, 250], [255, 0, 0]), 'no agent'
        ground = layers.make_representation(instance, sample)
        # Drivable ground (white) or a lane over it, below the agent. A lane
        # that goes the agent's way is cyan, one that comes towards it red.
        assert ground[400, 250].any()
        lane = ground[370:430, 235:266].reshape(-1, 3).astype(int)
        lane = lane[np.ptp(lane, axis=1) > 60]
        assert len(lane) > 100
        assert (lane[:, 0] < lane[:, 1:].max(1)).mean() > .9


def test_the_nearest_lane_goes_the_drivers_way(helper, drivers,
                                               official_root):
    from nuscenes.map_expansion import arcline_path_utils
    city = NuScenesMap(str(official_root), LOCATION)
    turns = []
    for instance, sample, _ in drivers:
        ann = helper.get_sample_annotation(instance, sample)
        x, y = ann['translation'][:2]
        yaw = quaternion_yaw(Quaternion(ann['rotation']))
        lane = city.get_closest_lane(x, y, radius=3)
        assert lane, (x, y)
        pose, _ = arcline_path_utils.project_pose_to_lane(
            (x, y, yaw), city.get_arcline_path(lane))
        car = ann['category_name'].startswith('vehicle.car')
        aside = np.hypot(pose[0] - x, pose[1] - y)
        assert aside < (1. if car else 3.), (ann['category_name'], x, y)
        turns.append(abs((pose[2] - yaw + np.pi) % (2 * np.pi) - np.pi))
    assert np.mean(np.array(turns) < .1) > .8
