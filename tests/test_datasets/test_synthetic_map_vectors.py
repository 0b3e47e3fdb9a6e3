"""Ground truth of map models, taken from the synthetic map their way."""

import numpy as np
import pytest
import shapely

from mmturbox.datasets.synthetic.city import City
from mmturbox.datasets.synthetic.map_expansion import write_map_expansion


@pytest.fixture(scope='module')
def city():
    return City.generate(np.random.default_rng((0, 99)))


@pytest.fixture(scope='module')
def nusc_map(city, tmp_path_factory):
    from nuscenes.map_expansion.map_api import NuScenesMap
    root = tmp_path_factory.mktemp('map')
    write_map_expansion(root, city)
    return NuScenesMap(str(root), 'boston-seaport')


def middle(path):
    xy, heading = path.at(path.length / 2)
    return (*xy.tolist(), float(heading))


def vectors(nusc_map, x, y, heading):
    """Polylines by class in a 30 x 60 m patch, as map models build them."""
    def geometry(layer):
        (_, found), = nusc_map.get_map_geom(
            (x, y, 60., 30.), np.degrees(heading) - 90, [layer])
        return found

    inner = shapely.box(-14.8, -29.8, 14.8, 29.8)
    roads = shapely.union_all(geometry('road_segment') + geometry('lane'))
    rings = [
        ring for part in getattr(roads, 'geoms', [roads])
        for ring in (part.exterior, *part.interiors)
    ]
    return dict(
        divider=geometry('road_divider') + geometry('lane_divider'),
        crossing=[g for g in geometry('ped_crossing') if g.area > 1.],
        boundary=[
            line for ring in rings
            for line in [shapely.line_merge(ring.intersection(inner))]
            if line.length > 1.
        ])


class TestVectorisedTruth:

    def test_all_classes_appear_around_streets(self, city, nusc_map):
        for street in city.streets[::6]:
            lane = city.lanes[street.forward[0]]
            s = lane.path.length - 20.
            xy, heading = lane.path.at(s)
            found = vectors(nusc_map, *xy.tolist(), float(heading))
            expected = 1 + 2 * (street.lanes_each_way - 1) + 2
            assert len(found['divider']) >= expected
            assert len(found['crossing']) >= 1
            assert len(found['boundary']) >= 1

    def test_boundaries_are_the_kerbs(self, city, nusc_map):
        street = city.streets[0]
        x, y, heading = middle(street.centre)
        found = vectors(nusc_map, x, y, heading)
        lines = [g for line in found['boundary']
                 for g in getattr(line, 'geoms', [line])]
        assert len(lines) == 2
        # Halfway along the street, square to it, at its half width.
        cut = shapely.LineString([(-14, 0), (14, 0)])
        across = sorted(line.intersection(cut).x for line in lines)
        np.testing.assert_allclose(
            across, [-street.half_width, street.half_width], atol=.02)

    def test_dividers_are_at_the_lanes_borders(self, city, nusc_map):
        street = next(s for s in city.streets if s.lanes_each_way == 2)
        x, y, heading = middle(street.centre)
        found = vectors(nusc_map, x, y, heading)
        cut = shapely.LineString([(-14, 0), (14, 0)])
        across = sorted(line.intersection(cut).x for line in found['divider'])
        np.testing.assert_allclose(across, [-7., -3.5, 0., 3.5, 7.],
                                   atol=.02)
