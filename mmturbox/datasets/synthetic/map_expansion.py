"""The city as a map of the nuScenes map expansion.

Layers and fields are those that the official files of version 1.3 have and
the devkit's ``NuScenesMap`` reads.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..files import complete_file
from .city import LANE_WIDTH, STOP_LINE, City, Junction, Lane, Street
from .map_records import MapRecords, arcline_records, principal
from .paths import ArcPath, Pose
from .tables import LOCATION, token

MAP_VERSION = '1.3'
# Width and height of the official map of boston-seaport, metres.
CANVAS_EDGE = (2979.5, 2118.1)
# Looks of a line, from node to node.
_MIDDLE, _BETWEEN, _EDGE = ('SINGLE_SOLID_YELLOW', 'DOUBLE_DASHED_WHITE',
                            'SINGLE_SOLID_WHITE')
# Metres from the kerb to a traffic light's post, from the ground to its
# lowest bulb, and between bulbs.
_POST, _LIGHT_HEIGHT, _BULB_PITCH = .8, 2.4, .3
_AREA = token('map', 'drivable_area')


def map_path(root: Path) -> Path:
    """The file below the data root."""
    return Path(root) / 'maps' / 'expansion' / f'{LOCATION}.json'


def write_map_expansion(root: Path, city: City) -> None:
    """Write ``maps/expansion/boston-seaport.json``; same city, same bytes."""
    with complete_file(map_path(root), 'w') as file:
        json.dump(map_expansion(city), file, separators=(',', ':'))


def map_expansion(city: City) -> dict:
    """Contents of the file: records by layer, lane paths and lane graph.

    Note:
        Junctions of three streets or more have traffic lights.
    """
    return _Builder(city).build()


def lane_token(lane: Lane) -> str:
    """Token of a lane's or a connector's record."""
    return token('map', 'lane', lane.index)


def block_token(street: int, forward: bool) -> str:
    """Token of the ``road_block`` along or against a street's centre line."""
    return token('map', 'road_block', street, forward)


class _Builder:
    """Adds layer by layer; records refer to earlier ones."""

    def __init__(self, city: City) -> None:
        self.city = city
        self.map = MapRecords()

    def build(self) -> dict:
        for street in self.city.streets:
            self._add_street(street)
        for junction in self.city.junctions:
            self._add_junction(junction)
        self._add_drivable_area()
        for street in self.city.streets:
            for forward in (True, False):
                self._add_block(street, forward)
            self._add_dividers(street)
        for lane in self.city.lanes:
            if lane.is_connector:
                self.map.add(
                    'lane_connector',
                    lane_token(lane),
                    polygon_token=self.map.polygon(lane.area))
        return dict(
            version=MAP_VERSION,
            canvas_edge=list(CANVAS_EDGE),
            **self.map.layers,
            arcline_path_3={
                lane_token(lane): arcline_records(lane.path)
                for lane in self.city.lanes
            },
            connectivity={
                lane_token(lane): dict(
                    incoming=self._lane_tokens(lane.entries),
                    outgoing=self._lane_tokens(lane.exits))
                for lane in self.city.lanes
            })

    def _lane_tokens(self, lanes: Iterable[int]) -> list[str]:
        return [lane_token(self.city.lanes[i]) for i in lanes]

    def _add_street(self, street: Street) -> None:
        path, kerb = street.centre, street.half_width
        right_half = _half(street)
        across = [*right_half[::-1], *(-i for i in right_half)]
        self._add_segment(
            _street_token(street.index),
            np.concatenate([
                path.offset(-kerb).polyline(),
                _beside(path.end, across),
                path.offset(kerb).polyline()[::-1],
                _beside(path.start, across[::-1])
            ]), False)
        for outline in street.walkways:
            self.map.add('walkway', polygon_token=self.map.polygon(outline))

    def _add_junction(self, junction: Junction) -> None:
        outline = self.map.nodes(junction.area)
        for arm in junction.arms:
            # The nodes of the lanes that end here, counter-clockwise: from
            # the right of the way out to its left.
            street = self.city.streets[arm.street]
            path = street.centre if arm.at_start else street.centre.reversed()
            half = _half(street)
            edge = self.map.nodes(
                _beside(path.start, [*half[::-1], *(-i for i in half)]))
            at = outline.index(edge[0]) + 1
            assert outline[at % len(outline)] == edge[-1], arm
            outline[at:at] = edge[1:-1]
        self._add_segment(
            token('map', 'junction', junction.index), outline, True)
        for corner in junction.corners:
            self.map.add('walkway', polygon_token=self.map.polygon(corner))

    def _add_segment(self, key: str, outline: np.ndarray | list[str],
                     is_intersection: bool) -> None:
        self.map.add(
            'road_segment',
            key,
            polygon_token=self.map.polygon(outline),
            is_intersection=is_intersection,
            drivable_area_token=_AREA)

    def _add_drivable_area(self) -> None:
        """All road segments in one, the blocks of houses are its holes."""
        import shapely
        exteriors = self.map.exteriors(
            [s['polygon_token'] for s in self.map.layers['road_segment']])
        area = shapely.unary_union([shapely.Polygon(e) for e in exteriors])
        self.map.add(
            'drivable_area',
            _AREA,
            polygon_tokens=[
                self.map.polygon(
                    shapely.get_coordinates(part.exterior),
                    [shapely.get_coordinates(i) for i in part.interiors])
                for part in getattr(area, 'geoms', [area])
            ])

    def _add_block(self, street: Street, forward: bool) -> None:
        """One direction of a street and all that belongs to it."""
        path = street.centre if forward else street.centre.reversed()
        half = _half(street)
        key = block_token(street.index, forward)
        self.map.add(
            'road_block',
            key,
            polygon_token=self.map.polygon(
                np.concatenate([
                    path.offset(-street.half_width).polyline(),
                    _beside(path.end, half[::-1]),
                    path.polyline()[::-1],
                    _beside(path.start, half)
                ])),
            from_edge_line_token=self.map.line(_beside(path.start, half)),
            to_edge_line_token=self.map.line(_beside(path.end, half)),
            road_segment_token=_street_token(street.index))
        self._add_lanes(street, forward)
        # Lists of a street's things have the left or the start first.
        side = int(forward)
        self.map.add(
            'carpark_area',
            polygon_token=self.map.polygon(street.parking[side]),
            orientation=principal(path.at(path.length / 2)[1]),
            road_block_token=key)
        crossing = self.map.add(
            'ped_crossing',
            polygon_token=self.map.polygon(street.crossings[side]),
            road_segment_token=_street_token(street.index))
        lights = self._add_lights(street, forward)
        self.map.add(
            'stop_line',
            polygon_token=self.map.polygon(street.stop_lines[side]),
            stop_line_type='TRAFFIC_LIGHT' if lights else 'PED_CROSSING',
            ped_crossing_tokens=[] if lights else [crossing],
            traffic_light_tokens=lights,
            road_block_token=key)

    def _add_lanes(self, street: Street, forward: bool) -> None:
        middle = street.divider if forward else street.divider.reversed()
        lanes = street.forward if forward else street.backward
        # From the middle to the right.
        borders = [
            middle.offset(-LANE_WIDTH * i) for i in range(len(lanes) + 1)
        ]
        looks = [_MIDDLE, *[_BETWEEN] * (len(lanes) - 1), _EDGE]
        for i, index in enumerate(lanes):
            lane = self.city.lanes[index]
            half = [LANE_WIDTH / 2, -LANE_WIDTH / 2]
            self.map.add(
                'lane',
                lane_token(lane),
                polygon_token=self.map.polygon(lane.area),
                lane_type='CAR',
                from_edge_line_token=self.map.line(
                    _beside(lane.path.start, half)),
                to_edge_line_token=self.map.line(
                    _beside(lane.path.end, half)),
                left_lane_divider_segments=self._looks(
                    borders[i], looks[i]),
                right_lane_divider_segments=self._looks(
                    borders[i + 1], looks[i + 1]))

    def _looks(self, path: ArcPath, look: str) -> list[dict]:
        return [
            dict(node_token=key, segment_type=look)
            for key in self.map.nodes(path.polyline())
        ]

    def _add_lights(self, street: Street, forward: bool) -> list[str]:
        """The light at the end of a block, if there is one, as a token."""
        junction = self.city.junctions[street.nodes[int(forward)]]
        if len(junction.arms) < 3:
            return []
        path = street.centre if forward else street.centre.reversed()
        x, y, heading = path.cut(0., path.length - STOP_LINE[0]).end
        (x, y), = _beside((x, y, heading), [-street.half_width - _POST])
        facing = np.array([-np.cos(heading), -np.sin(heading)])
        bulbs = [
            dict(
                color=color,
                shape='CIRCLE',
                rel_pos=_pose(tz=_BULB_PITCH * i),
                to_road_block_tokens=[
                    block_token(arm.street, arm.at_start)
                    for arm in junction.arms if arm.street != street.index
                ]) for i, color in enumerate(('GREEN', 'YELLOW', 'RED'))
        ]
        return [
            self.map.add(
                'traffic_light',
                line_token=self.map.line(
                    np.array([[x, y], [x, y] + facing])),
                traffic_light_type='VERTICAL',
                from_road_block_token=block_token(street.index, forward),
                items=bulbs[::-1],
                pose=_pose(
                    tx=float(x),
                    ty=float(y),
                    tz=_LIGHT_HEIGHT,
                    rz=principal(heading + np.pi)))
        ]

    def _add_dividers(self, street: Street) -> None:
        self.map.add(
            'road_divider',
            line_token=self.map.line(street.divider.polyline()),
            road_segment_token=_street_token(street.index))
        for paths, look in ((street.lane_dividers, _BETWEEN),
                            (street.cycle_lines, _EDGE)):
            for path in paths:
                self.map.add(
                    'lane_divider',
                    line_token=self.map.line(path.polyline()),
                    lane_divider_segments=self._looks(path, look))


def _half(street: Street) -> list[float]:
    """Metres to the left of the middle: borders of the lanes on the right,
    and the kerb."""
    lanes = range(street.lanes_each_way + 1)
    return [*(-LANE_WIDTH * i for i in lanes), -street.half_width]


def _beside(pose: Pose, offsets: list[float]) -> np.ndarray:
    """(P, 2) points ``offsets`` metres to the left of a pose."""
    x, y, heading = pose
    left = np.array([-np.sin(heading), np.cos(heading)])
    return np.array([x, y]) + np.array(offsets)[:, None] * left


def _pose(**values: float) -> dict[str, float]:
    """Position in metres and rotations in radians, 0 unless given."""
    return dict.fromkeys(('tx', 'ty', 'tz', 'rx', 'ry', 'rz'), 0.) | values


def _street_token(street: int) -> str:
    return token('map', 'street', street)
