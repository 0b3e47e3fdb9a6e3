"""By the devkit's tables and map, traffic is where it may be."""

import numpy as np
import pytest
from nuscenes.can_bus.can_bus_api import NuScenesCanBus
from nuscenes.eval.common.utils import quaternion_yaw
from nuscenes.map_expansion import arcline_path_utils
from nuscenes.map_expansion.map_api import NuScenesMap
from pyquaternion import Quaternion
from shapely.geometry import Point, Polygon
from shapely.ops import unary_union
from shapely.strtree import STRtree

from mmturbox.datasets.synthetic.tables import LOCATION


@pytest.fixture(scope='module')
def city(official_root):
    return NuScenesMap(str(official_root), LOCATION)


@pytest.fixture(scope='module')
def area(city):
    """The union of some layers' polygons."""

    def union(*names):
        tokens = [
            token for name in names for row in getattr(city, name)
            for token in (row['polygon_tokens'] if name == 'drivable_area'
                          else [row['polygon_token']])
        ]
        return unary_union([city.extract_polygon(t) for t in tokens])

    return union


def footprint(box) -> Polygon:
    return Polygon(box.bottom_corners()[:2].T)


def test_no_two_boxes_overlap(nusc, truths):
    for truth, scene in zip(truths, nusc.scene, strict=True):
        token, number = scene['first_sample_token'], 0
        while token:
            sample = nusc.get('sample', token)
            shapes = [footprint(nusc.get_box(t)) for t in sample['anns']]
            x, y, _, length, width, _, yaw = truth.world.ego_box(number / 2)
            corner = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]])
            turn = np.array([[np.cos(yaw), np.sin(yaw)],
                             [-np.sin(yaw), np.cos(yaw)]])
            shapes.append(
                Polygon(corner * [length / 2, width / 2] @ turn + [x, y]))
            first, second = STRtree(shapes).query(
                shapes, predicate='intersects')
            for i, j in zip(first, second, strict=True):
                if i < j:
                    assert shapes[i].intersection(shapes[j]).area < 1e-6
            token, number = sample['next'], number + 1


def test_vehicles_are_on_the_road_and_people_are_not(nusc, area):
    road = area('drivable_area', 'carpark_area')
    foot = area('walkway', 'ped_crossing')
    vehicles = people = 0
    for ann in nusc.sample_annotation:
        shape = footprint(nusc.get_box(ann['token']))
        if ann['category_name'].startswith('vehicle'):
            # Parked trailers may touch the kerb where the street bends.
            out = shape.difference(road).area / shape.area
            assert out < .005, (ann['category_name'], out)
            vehicles += 1
        elif ann['category_name'].startswith('human'):
            assert foot.distance(Point(ann['translation'][:2])) < .01
            people += 1
    assert vehicles > 100 and people > 100


def test_velocities_are_those_of_the_motion(nusc, truths):
    """The devkit's are differences over a second, or half of one at the
    ends, so they are the mean velocity."""
    checked = 0
    for truth, scene in zip(truths, nusc.scene, strict=True):
        times = np.arange(scene['nbr_samples'] * 10 - 9) / 20
        motion = truth.world.actor_motion(times)
        heading = np.stack([np.cos(motion.heading), np.sin(motion.heading)],
                           -1)
        velocity = motion.speed[..., None] * heading
        token, number = scene['first_sample_token'], 0
        while token:
            sample = nusc.get('sample', token)
            for key in sample['anns']:
                ann = nusc.get('sample_annotation', key)
                first = 10 * (number - bool(ann['prev']))
                last = 10 * (number + bool(ann['next']))
                found = nusc.box_velocity(key)[:2]
                if first == last:
                    assert np.isnan(found).all()
                    continue
                actor = truth.actor_of[ann['instance_token']]
                between = velocity[first:last + 1, actor]
                mean = (between[1:] + between[:-1]).mean(0) / 2
                np.testing.assert_allclose(found, mean, atol=.03)
                checked += np.linalg.norm(mean) > .5
            token, number = sample['next'], number + 1
    assert checked > 100


def test_the_ego_vehicle_follows_its_lane(nusc, city):
    turns = []
    for sample in nusc.sample:
        x, y, yaw = pose_of(nusc, sample['data']['LIDAR_TOP'])
        lane = city.get_closest_lane(x, y, radius=3)
        assert lane, (x, y)
        lane_pose, _ = arcline_path_utils.project_pose_to_lane(
            (x, y, yaw), city.get_arcline_path(lane))
        assert np.hypot(lane_pose[0] - x, lane_pose[1] - y) < .5
        turns.append(abs((lane_pose[2] - yaw + np.pi) % (2 * np.pi) - np.pi))
        layers = city.layers_on_point(x, y)
        assert layers['drivable_area']
    # Where lanes part, the closest one may be a neighbour.
    assert np.mean(np.array(turns) < .05) > .7


def pose_of(nusc, token) -> tuple[float, float, float]:
    row = nusc.get('ego_pose',
                   nusc.get('sample_data', token)['ego_pose_token'])
    yaw = quaternion_yaw(Quaternion(row['rotation']))
    return (*row['translation'][:2], yaw)


def test_can_bus_poses_are_the_ego_poses(nusc, official_root):
    bus = NuScenesCanBus(str(official_root))
    for scene in nusc.scene:
        messages = bus.get_messages(scene['name'], 'pose')
        times = np.array([m['utime'] for m in messages])
        sample = nusc.get('sample', scene['first_sample_token'])
        token = sample['data']['LIDAR_TOP']
        equal = 0
        while token:
            row = nusc.get('sample_data', token)
            pose = nusc.get('ego_pose', row['ego_pose_token'])
            nearest = messages[np.abs(times - row['timestamp']).argmin()]
            lag = (nearest['utime'] - row['timestamp']) / 1e6
            assert abs(lag) <= .01
            turn = Quaternion(nearest['orientation'])
            ahead = turn.rotate([nearest['vel'][0] * lag, 0., 0.])
            np.testing.assert_allclose(
                nearest['pos'], np.add(pose['translation'], ahead), atol=2e-3)
            gap = quaternion_yaw(turn) - quaternion_yaw(
                Quaternion(pose['rotation']))
            gap -= nearest['rotation_rate'][2] * lag
            assert abs((gap + np.pi) % (2 * np.pi) - np.pi) < 2e-3
            equal += lag == 0
            token = row['next']
        assert equal >= scene['nbr_samples']
