"""A scene's world moves like one: consistent, apart, and full."""

import numpy as np
import pytest
import shapely

from mmturbox.datasets.synthetic.buildings import box_corners
from mmturbox.datasets.synthetic.kinds import KIND_INDEX, KINDS
from mmturbox.datasets.synthetic.scene import surroundings
from mmturbox.datasets.synthetic.world import World


@pytest.fixture(scope='module')
def around():
    return surroundings(0)


@pytest.fixture(scope='module')
def worlds(around):
    return [
        World.generate(np.random.default_rng((0, i)), around, 12.)
        for i in range(2)
    ]


def test_motion_agrees_with_its_derivatives(worlds):
    times = np.arange(0., 12., .02)
    for world in worlds:
        motion = world.actor_motion(times)
        ego = world.ego_motion(times)
        moves = np.abs(motion.speed).max(0) > 1.
        assert moves.sum() > 20
        for xy, heading, speed in (
            (motion.xy[:, moves], motion.heading[:, moves],
             motion.speed[:, moves]),
            (ego.xy[:, None], ego.heading[:, None], ego.speed[:, None])):
            velocity = np.gradient(xy, .02, axis=0)[1:-1]
            course = np.stack([np.cos(heading), np.sin(heading)], -1)
            np.testing.assert_allclose(
                velocity, (speed[..., None] * course)[1:-1], atol=.15)
        rate = np.gradient(ego.heading, .02)
        assert np.median(np.abs(rate - ego.speed * ego.curvature)) < 1e-3


@pytest.mark.parametrize('seed', [3, 4])
def test_nobody_overlaps_anybody(worlds, seed):
    other_city = World.generate(
        np.random.default_rng((seed, 1, 0)), surroundings(seed), 12.)
    for world in (*worlds, other_city):
        for time in np.arange(0., 12., .5):
            boxes = np.concatenate([
                world.actor_boxes(time), world.ego_box(time)[None],
                world.structures
            ])
            shapes = shapely.polygons(box_corners(boxes))
            one, other = shapely.STRtree(shapes).query(shapes, 'intersects')
            shared = shapely.area(
                shapely.intersection(shapes[one], shapes[other]))
            assert shared[one != other].max(initial=0.) < .02, time


def test_the_ego_vehicle_turns_at_a_junction(worlds):
    for world in worlds:
        motion = world.ego_motion(np.arange(0., 12., .1))
        assert np.ptp(motion.heading) > np.deg2rad(60)
        assert motion.speed.max() > 5.
        assert np.abs(motion.speed**2 * motion.curvature).max() < 3.5


def test_every_class_is_near_at_all_times(worlds):
    for world in worlds:
        for time in (0., 4., 8., 12.):
            away = world.actor_boxes(time)[:, :2] - world.ego_pose(time)[0][
                :2]
            near = np.linalg.norm(away, axis=1) < 65.
            assert len(np.unique(world.kind[near])) == len(KINDS)


def test_vehicles_keep_to_the_road_and_people_to_their_ways(worlds):
    city = worlds[0].city
    road = shapely.union_all(
        [shapely.Polygon(s.area) for s in city.streets] +
        [shapely.Polygon(j.area) for j in city.junctions])
    ways = shapely.union_all(
        [shapely.Polygon(w) for s in city.streets for w in s.walkways] +
        [shapely.Polygon(c) for j in city.junctions for c in j.corners] +
        [shapely.Polygon(c) for s in city.streets
         for c in s.crossings]).buffer(.6)
    walks = KIND_INDEX['pedestrian']
    for world in worlds:
        for time in (0., 6., 12.):
            boxes = world.actor_boxes(time)
            points = shapely.points(boxes[:, :2])
            people = world.kind == walks
            assert shapely.covers(road, points[~people]).all()
            assert shapely.covers(ways, points[people]).all()


def test_some_people_cross_the_road(around):
    crossings = shapely.union_all([
        shapely.Polygon(c) for s in around.city.streets for c in s.crossings
    ])
    shapely.prepare(crossings)
    found = 0
    for seed in range(4):
        world = World.generate(np.random.default_rng(seed), around, 4.)
        people = world.kind == KIND_INDEX['pedestrian']
        for time in (0., 4.):
            points = shapely.points(world.actor_boxes(time)[people, :2])
            found += shapely.contains(crossings, points).sum()
    assert found >= 4


def test_some_go_some_stop_and_some_stand(worlds):
    speed = np.concatenate([
        w.actor_motion(np.arange(0., 12., .5)).speed for w in worlds
    ], 1)
    assert (speed.min(0) > 2.).any()
    assert ((speed.max(0) > 3.) & (speed.min(0) < .1)).any()
    assert (speed == 0).all(0).any()


def test_a_world_depends_on_its_seed_alone(around):
    one, same, other = (
        World.generate(np.random.default_rng((7, n)), around, 2.)
        for n in (0, 0, 1))
    np.testing.assert_array_equal(one.actor_boxes(1.3), same.actor_boxes(1.3))
    assert one.ego_pose(1.3)[0].tolist() == same.ego_pose(1.3)[0].tolist()
    assert one.ego_pose(1.3)[0].tolist() != other.ego_pose(1.3)[0].tolist()
