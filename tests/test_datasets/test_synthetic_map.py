"""The synthetic city's map, read by the official map API."""

from types import SimpleNamespace

import numpy as np
import pytest
import shapely

from mmturbox.datasets.synthetic.city import City
from mmturbox.datasets.synthetic.ground_classes import (
    DRIVEABLE,
    SIDEWALK,
)
from mmturbox.datasets.synthetic.map_expansion import (
    block_token,
    lane_token,
    map_expansion,
    map_path,
    write_map_expansion,
)

LAYER_FIELDS = {
    'polygon': {'token', 'exterior_node_tokens', 'holes'},
    'line': {'token', 'node_tokens'},
    'node': {'token', 'x', 'y'},
    'drivable_area': {'token', 'polygon_tokens'},
    'road_segment': {
        'token', 'polygon_token', 'is_intersection', 'drivable_area_token'
    },
    'road_block': {
        'token', 'polygon_token', 'from_edge_line_token',
        'to_edge_line_token', 'road_segment_token'
    },
    'lane': {
        'token', 'polygon_token', 'lane_type', 'from_edge_line_token',
        'to_edge_line_token', 'left_lane_divider_segments',
        'right_lane_divider_segments'
    },
    'lane_connector': {'token', 'polygon_token'},
    'ped_crossing': {'token', 'polygon_token', 'road_segment_token'},
    'walkway': {'token', 'polygon_token'},
    'stop_line': {
        'token', 'polygon_token', 'stop_line_type', 'ped_crossing_tokens',
        'traffic_light_tokens', 'road_block_token'
    },
    'carpark_area': {
        'token', 'polygon_token', 'orientation', 'road_block_token'
    },
    'road_divider': {'token', 'line_token', 'road_segment_token'},
    'lane_divider': {'token', 'line_token', 'lane_divider_segments'},
    'traffic_light': {
        'token', 'line_token', 'traffic_light_type', 'from_road_block_token',
        'items', 'pose'
    },
}


@pytest.fixture(scope='module')
def map_root(city, tmp_path_factory):
    root = tmp_path_factory.mktemp('map')
    write_map_expansion(root, city)
    return root


@pytest.fixture(scope='module')
def nusc_map(map_root):
    from nuscenes.map_expansion.map_api import NuScenesMap
    return NuScenesMap(str(map_root), 'boston-seaport')


@pytest.fixture
def figures(monkeypatch):
    """Rendering off screen, with a polygon patch that knows shapely 2."""
    import matplotlib
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    previous = matplotlib.get_backend()
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    def patch(polygon, **kwargs):
        rings = [polygon.exterior, *polygon.interiors]
        return PathPatch(
            Path.make_compound_path(*(Path(
                shapely.get_coordinates(r), closed=True) for r in rings)),
            **kwargs)

    monkeypatch.setattr('descartes.PolygonPatch', patch)
    yield plt
    plt.close('all')
    matplotlib.use(previous)


def polygons(nusc_map, layer):
    return {
        record['token']: nusc_map.extract_polygon(record['polygon_token'])
        for record in getattr(nusc_map, layer)
    }


def drivable(nusc_map):
    return shapely.union_all([
        nusc_map.extract_polygon(token)
        for record in nusc_map.drivable_area
        for token in record['polygon_tokens']
    ])


def middle(path):
    xy, heading = path.at(path.length / 2)
    return (*xy.tolist(), float(heading))


class TestRecords:

    def test_layers_and_fields_are_those_of_the_official_files(self, city):
        records = map_expansion(city)
        assert set(records) == {
            *LAYER_FIELDS, 'version', 'canvas_edge', 'arcline_path_3',
            'connectivity'
        }
        for layer, fields in LAYER_FIELDS.items():
            assert records[layer], layer
            assert all(set(r) == fields for r in records[layer]), layer
        (_, paths), *_ = records['arcline_path_3'].items()
        assert set(paths[0]) == {
            'start_pose', 'end_pose', 'shape', 'radius', 'segment_length'
        }
        assert records['version'] == '1.3'

    def test_tokens_are_unique(self, city):
        records = map_expansion(city)
        tokens = [r['token'] for name in LAYER_FIELDS for r in records[name]]
        assert len(set(tokens)) == len(tokens)

    def test_same_city_gives_the_same_file(self, city, map_root, tmp_path):
        again = City.generate(np.random.default_rng((0, 99)))
        write_map_expansion(tmp_path, again)
        assert map_path(tmp_path).read_bytes() == map_path(
            map_root).read_bytes()

    def test_everything_lies_on_the_canvas(self, nusc_map):
        xy = np.array([[n['x'], n['y']] for n in nusc_map.node])
        assert (xy > 0).all() and (xy < nusc_map.canvas_edge).all()


class TestAreas:

    def test_all_polygons_are_valid(self, nusc_map):
        for record in nusc_map.polygon:
            assert nusc_map.extract_polygon(record['token']).is_valid

    def test_roads_fill_the_drivable_area(self, city, nusc_map):
        area = drivable(nusc_map)
        # The blocks of houses, closed in by streets.
        holes = len(city.streets) - len(city.junctions) + 1
        assert len(area.interiors) == holes
        union = shapely.union_all(
            list(polygons(nusc_map, 'road_segment').values()))
        assert area.symmetric_difference(union).area < 1.

    @pytest.mark.parametrize('layer', [
        'lane', 'lane_connector', 'road_block', 'ped_crossing', 'stop_line',
        'carpark_area'
    ])
    def test_what_is_driven_on_is_drivable(self, nusc_map, layer):
        area = drivable(nusc_map)
        for polygon in polygons(nusc_map, layer).values():
            assert polygon.difference(area).area < .01

    def test_walkways_touch_roads_and_do_not_overlap_them(self, nusc_map):
        area = drivable(nusc_map)
        for polygon in polygons(nusc_map, 'walkway').values():
            assert polygon.distance(area) < .02
            assert polygon.intersection(area).area < .05

    def test_streets_and_junctions_are_told_apart(self, city, nusc_map):
        flags = [r['is_intersection'] for r in nusc_map.road_segment]
        assert flags.count(False) == len(city.streets)
        assert flags.count(True) == len(city.junctions)

    def test_a_point_on_a_lane_is_on_all_that_holds_it(self, city, nusc_map):
        for street in city.streets[::7]:
            for forward in (True, False):
                index = (street.forward if forward else street.backward)[0]
                lane = city.lanes[index]
                x, y, _ = middle(lane.path)
                layers = nusc_map.layers_on_point(x, y)
                assert layers['lane'] == lane_token(lane)
                assert layers['road_block'] == block_token(
                    street.index, forward)
                assert layers['road_segment'] and layers['drivable_area']
                assert not layers['walkway'] and not layers['carpark_area']

    def test_records_are_found_by_place(self, city, nusc_map):
        street = city.streets[0]
        x, y, _ = middle(street.centre)
        found = nusc_map.get_records_in_radius(x, y, 20.,
                                               nusc_map.lookup_polygon_layers)
        assert set(found['lane']) >= {
            lane_token(city.lanes[i])
            for i in (*street.forward, *street.backward)
        }
        assert len(found['road_block']) == 2 and len(found['walkway']) == 2
        within = nusc_map.get_records_in_patch(
            (x - 90, y - 90, x + 90, y + 90), mode='within')
        assert all(within[layer] for layer in
                   ('lane', 'ped_crossing', 'lane_divider', 'road_divider'))

    def test_parked_cars_head_along_their_block(self, city, nusc_map):
        for record in nusc_map.carpark_area[::9]:
            block = polygons(nusc_map,
                             'road_block')[record['road_block_token']]
            area = nusc_map.extract_polygon(record['polygon_token'])
            assert area.difference(block).area < .01
            xy = np.array(area.centroid.coords[0])
            street = next(s for s in city.streets for f in (True, False)
                          if block_token(s.index, f) ==
                          record['road_block_token'])
            left = polygon_side(street, xy)
            heading = middle(street.centre)[2] + (np.pi if left else 0.)
            turn = heading - record['orientation']
            assert abs((turn + np.pi) % (2 * np.pi) - np.pi) < .01


def polygon_side(street, xy):
    """Whether a point near a street's middle lies on its left."""
    x, y, heading = middle(street.centre)
    return np.cos(heading) * (xy[1] - y) > np.sin(heading) * (xy[0] - x)


class TestLanes:

    def test_centre_lines_equal_the_citys_paths(self, city, nusc_map):
        for lane in city.lanes:
            records = nusc_map.get_arcline_path(lane_token(lane))
            poses = nusc_map.discretize_lanes([lane_token(lane)],
                                              1.)[lane_token(lane)]
            begin, s = 0., []
            for record in records:
                length = sum(record['segment_length'])
                count = int(np.ceil(length / 1.) + 1.5)
                s += np.linspace(begin, begin + length, count).tolist()
                begin += length
            assert begin == pytest.approx(lane.path.length, abs=1e-6)
            xy, heading = lane.path.at(np.array(s))
            poses = np.array(poses)
            np.testing.assert_allclose(poses[:, :2], xy, atol=1e-4)
            np.testing.assert_allclose(
                np.exp(1j * poses[:, 2]), np.exp(1j * heading), atol=1e-4)

    def test_neighbours_in_the_graph_touch(self, city, nusc_map):
        ends = {lane_token(lane): lane.path for lane in city.lanes}
        for key, path in ends.items():
            after = nusc_map.get_outgoing_lane_ids(key)
            before = nusc_map.get_incoming_lane_ids(key)
            assert after and before
            for other in after:
                np.testing.assert_allclose(
                    ends[other].start[:2], path.end[:2], atol=1e-6)
                assert key in nusc_map.get_incoming_lane_ids(other)
            for other in before:
                assert key in nusc_map.get_outgoing_lane_ids(other)

    def test_the_graph_is_in_one_piece(self, nusc_map):
        from nuscenes.map_expansion.utils import get_disconnected_lanes
        assert get_disconnected_lanes(nusc_map) == []

    def test_the_closest_lane_is_the_one_underneath(self, city, nusc_map):
        for lane in city.lanes[::17]:
            if not lane.is_connector:
                x, y, _ = middle(lane.path)
                assert nusc_map.get_closest_lane(x, y) == lane_token(lane)

    def test_a_lane_ends_at_its_junction(self, city, nusc_map):
        for lane in city.lanes[::11]:
            if lane.is_connector:
                continue
            x, y, _ = middle(lane.path)
            after = nusc_map.get_next_roads(x, y)['road_segment']
            centre = city.junctions[lane.junction].centre
            segment = nusc_map.record_on_point(*centre, 'road_segment')
            assert segment in after
            assert nusc_map.get('road_segment', segment)['is_intersection']

    def test_dividers_lie_on_the_lanes_edges(self, city, nusc_map):
        for record in nusc_map.lane[::5]:
            edge = nusc_map.extract_polygon(record['polygon_token']).exterior
            line = shapely.LineString(
                [p[:2] for p in nusc_map.discretize_lanes(
                    [record['token']], .5)[record['token']]])
            for side in ('left', 'right'):
                nodes = record[f'{side}_lane_divider_segment_nodes']
                points = np.array([[n['x'], n['y']] for n in nodes])
                assert len(points) > 1
                assert edge.distance(shapely.points(points)).max() < .02
                first, last = line.project(shapely.points(points[[0, -1]]))
                assert first < last
                step = points[1] - points[0]
                out = points[0] - np.array(
                    line.interpolate(first).coords[0])
                turn = step[0] * out[1] - step[1] * out[0]
                assert (turn > 0) == (side == 'left')

    def test_lines_look_right(self, city, nusc_map):
        looks = {
            (record['token'], side): {
                s['segment_type']
                for s in record[f'{side}_lane_divider_segments']
            }
            for record in nusc_map.lane for side in ('left', 'right')
        }
        for street in city.streets:
            for lanes in (street.forward, street.backward):
                keys = [lane_token(city.lanes[i]) for i in lanes]
                assert looks[keys[0], 'left'] == {'SINGLE_SOLID_YELLOW'}
                assert looks[keys[-1], 'right'] == {'SINGLE_SOLID_WHITE'}
                if len(keys) > 1:
                    assert looks[keys[0], 'right'] == looks[
                        keys[1], 'left'] == {'DOUBLE_DASHED_WHITE'}


class TestMarkings:

    def test_every_street_has_its_lines_and_crossings(self, city, nusc_map):
        streets = len(city.streets)
        two_lanes = sum(s.lanes_each_way - 1 for s in city.streets)
        assert len(nusc_map.road_divider) == streets
        # Between lanes, and between lanes and cycle lanes.
        assert len(nusc_map.lane_divider) == 2 * two_lanes + 2 * streets
        assert len(nusc_map.ped_crossing) == 2 * streets
        assert len(nusc_map.stop_line) == 2 * streets

    def test_road_dividers_part_the_directions(self, nusc_map):
        blocks = list(polygons(nusc_map, 'road_block').values())
        for record in nusc_map.road_divider:
            line = nusc_map.extract_line(record['line_token'])
            beside = [b for b in blocks if b.boundary.distance(line) < .01]
            assert len(beside) == 2
            assert not any(
                b.buffer(-.05).intersects(line) for b in blocks)

    def test_crossings_lie_on_their_street(self, nusc_map):
        segments = polygons(nusc_map, 'road_segment')
        for record in nusc_map.ped_crossing:
            area = nusc_map.extract_polygon(record['polygon_token'])
            segment = segments[record['road_segment_token']]
            assert area.difference(segment).area < .01

    def test_stop_lines_have_their_cues(self, city, nusc_map):
        kinds = {r['stop_line_type'] for r in nusc_map.stop_line}
        assert kinds == {'TRAFFIC_LIGHT', 'PED_CROSSING'}
        for record in nusc_map.stop_line:
            cue, = record['cue']
            if record['stop_line_type'] == 'TRAFFIC_LIGHT':
                assert cue['from_road_block_token'] == record[
                    'road_block_token']
            else:
                area = nusc_map.extract_polygon(cue['polygon_token'])
                line = nusc_map.extract_polygon(record['polygon_token'])
                assert 1. < area.distance(line) < 2.

    def test_stop_lines_are_where_their_block_ends(self, nusc_map):
        for record in nusc_map.stop_line:
            block = nusc_map.get('road_block', record['road_block_token'])
            area = nusc_map.extract_polygon(block['polygon_token'])
            line = nusc_map.extract_polygon(record['polygon_token'])
            assert line.difference(area).area < .01
            end = nusc_map.extract_line(block['to_edge_line_token'])
            assert line.distance(end) == pytest.approx(5.2, abs=.05)

    def test_lights_face_the_traffic_that_they_stop(self, nusc_map):
        for record in nusc_map.traffic_light:
            block = nusc_map.get('road_block',
                                 record['from_road_block_token'])
            start, end = (
                np.array(nusc_map.extract_line(block[edge]).centroid.coords[0])
                for edge in ('from_edge_line_token', 'to_edge_line_token'))
            facing = record['pose']['rz']
            line = np.array(nusc_map.extract_line(record['line_token']).coords)
            np.testing.assert_allclose(
                line[1] - line[0], [np.cos(facing), np.sin(facing)],
                atol=1e-3)
            assert (line[1] - line[0]) @ (end - start) < 0
            assert not nusc_map.record_on_point(*line[0], 'drivable_area')
            colors = [i['color'] for i in record['items']]
            assert colors == ['RED', 'YELLOW', 'GREEN']
            heights = [i['rel_pos']['tz'] for i in record['items']]
            assert heights == sorted(heights, reverse=True)

    def test_lights_lead_from_block_to_block(self, city, nusc_map):
        # Blocks that lanes of the first reach through the junction.
        blocks = {
            i: block_token(street.index, forward)
            for street in city.streets for forward in (True, False)
            for i in (street.forward if forward else street.backward)
        }
        reached = {token: set() for token in blocks.values()}
        for lane in city.lanes:
            if lane.is_connector:
                reached[blocks[lane.entries[0]]] |= {
                    blocks[i] for i in lane.exits
                }
        for record in nusc_map.traffic_light:
            for item in record['items']:
                assert set(item['to_road_block_tokens']) == reached[
                    record['from_road_block_token']]


class TestPictures:

    def test_masks_of_the_api_equal_the_ground(self, city, nusc_map, ground):
        x, y = city.junctions[8].centre
        masks = nusc_map.get_map_mask((x, y, 80., 80.), 0.,
                                      ['drivable_area', 'walkway'],
                                      (800, 800))
        at = (np.arange(800) + .5) / 10 - 40
        classes = ground.at(np.stack(np.meshgrid(x + at, y + at), -1))
        for mask, value in zip(masks, (DRIVEABLE, SIDEWALK), strict=True):
            assert mask.mean() > .03
            assert (mask == (classes == value)).mean() > .99

    def test_a_street_is_rendered(self, city, nusc_map, figures):
        x, y, _ = middle(city.streets[0].centre)
        figure, axes = nusc_map.render_map_patch(
            (x - 60, y - 60, x + 60, y + 60),
            nusc_map.non_geometric_layers,
            figsize=(4, 4))
        figure.canvas.draw()
        labels = axes.get_legend_handles_labels()[1]
        assert labels == nusc_map.non_geometric_layers

    def test_the_prediction_rasteriser_draws_it(self, city, map_root,
                                                monkeypatch):
        from nuscenes.prediction.input_representation import static_layers
        monkeypatch.setattr(static_layers, 'locations', ['boston-seaport'])
        x, y, heading = middle(city.lanes[0].path)
        helper = SimpleNamespace(
            data=SimpleNamespace(dataroot=str(map_root)),
            get_sample_annotation=lambda instance, sample: dict(
                translation=[x, y, 0.],
                rotation=[np.cos(heading / 2), 0., 0., np.sin(heading / 2)]),
            get_map_name_from_sample_token=lambda sample: 'boston-seaport')
        rasterizer = static_layers.StaticLayerRasterizer(helper)
        image = rasterizer.make_representation('', '')
        assert image.shape == (500, 500, 3)
        # The agent is 10 m from the lower edge, on a road that goes up.
        assert image[400, 250].any()
        white = (image == 255).all(-1)
        assert white[300:450, 240:260].mean() > .5
        # Walkways are blue: one on each side.
        blue = (image == (0, 0, 255)).all(-1)
        assert blue[380:420, :250].any() and blue[380:420, 250:].any()
