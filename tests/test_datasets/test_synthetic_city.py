"""The city is whole: lanes join, nothing overlaps that must not."""

import numpy as np
import pytest
import shapely

from mmturbox.datasets.synthetic.buildings import BUILDING, TREE, box_corners
from mmturbox.datasets.synthetic.city import LANE_WIDTH, City
from mmturbox.datasets.synthetic.world import Surroundings


@pytest.fixture(scope='module', params=[0, 1])
def around(request):
    return Surroundings.generate(np.random.default_rng(request.param))


def test_lanes_join_without_a_kink(around):
    lanes = around.city.lanes
    assert all(lane.entries and lane.exits for lane in lanes)
    for lane in lanes:
        for i in lane.exits:
            assert lane.index in lanes[i].entries
            x, y, heading = lane.path.end
            a, b, away = lanes[i].path.start
            assert np.hypot(a - x, b - y) < 1e-6
            assert np.cos(away - heading) > 1 - 1e-12


def test_connectors_turn_as_they_say(around):
    for lane in around.city.lanes:
        turned = lane.path.end[2] - lane.path.start[2]
        if lane.is_connector:
            side = dict(left=1., straight=0., right=-1.)[lane.turn]
            assert turned == pytest.approx(side * np.pi / 2, abs=1e-6)
            assert all(not around.city.lanes[i].is_connector
                       for i in lane.entries + lane.exits)


def test_lanes_lie_on_the_carriageway_and_neighbours_touch(around):
    city = around.city
    road = shapely.union_all(
        [shapely.Polygon(s.area) for s in city.streets] +
        [shapely.Polygon(j.area) for j in city.junctions]).buffer(.02)
    for lane in city.lanes:
        assert road.covers(shapely.Polygon(lane.area))
        if lane.right >= 0:
            other = city.lanes[lane.right]
            assert other.left == lane.index
            gap = np.array(other.path.start[:2]) - lane.path.start[:2]
            assert np.linalg.norm(gap) == pytest.approx(LANE_WIDTH)


def test_streets_walkways_and_buildings_do_not_overlap(around):
    city = around.city
    parts = [s.area for s in city.streets] + [
        w for s in city.streets for w in s.walkways
    ] + [j.area for j in city.junctions] + [
        c for j in city.junctions for c in j.corners
    ] + list(box_corners(around.boxes))
    shapes = np.array([shapely.Polygon(p) for p in parts])
    assert shapely.is_valid(shapes).all()
    tree = shapely.STRtree(shapes)
    one, other = tree.query(shapes, 'intersects')
    shared = shapely.area(shapely.intersection(shapes[one], shapes[other]))
    # Chords of arcs.
    assert shared[one != other].max() < .05
    assert {*around.kind.tolist()} == {BUILDING, TREE}


def test_one_can_drive_from_any_lane_to_any_other(around):
    import scipy.sparse.csgraph
    count = len(around.city.lanes)
    graph = scipy.sparse.lil_matrix((count, count))
    for lane in around.city.lanes:
        graph[lane.index, lane.exits] = 1
    assert scipy.sparse.csgraph.connected_components(
        graph, connection='strong')[0] == 1


def test_a_city_depends_on_its_seed():
    one, same, other = (City.generate(np.random.default_rng(n))
                        for n in (4, 4, 5))
    assert one.lanes == same.lanes
    assert one.lanes != other.lanes
