"""The city as an Argoverse 2 vector map.

Every lane of the city is one lane segment. Cycle lanes are segments too, with
a connector where they turn right with the outermost lane. Ids depend on the
city alone, so that they mean the same in all scenarios.
"""

from collections.abc import Iterable

import numpy as np

from .city import CYCLE_WIDTH, LANE_WIDTH, City, Lane
from .paths import ArcPath

# Official local maps reach this far from the ego vehicle's way (measured
# along x or y).
MAP_REACH = 100.
_LANE, _BIKE, _CROSSING, _AREA = (k * 100_000_000 for k in range(1, 5))
# Metres from an outermost lane's centre to that of the cycle lane beside it.
_TO_BIKE = (LANE_WIDTH + CYCLE_WIDTH) / 2
_SPACING, _SAGITTA = 3., .05


def city_map(city: City) -> dict[str, dict[str, dict]]:
    """The whole city in the layout of ``log_map_archive_{id}.json``."""
    outer = {lanes[-1] for s in city.streets
             for lanes in (s.forward, s.backward)}
    lanes = [_lane(city, lane, outer) for lane in city.lanes]
    lanes += [
        _bike(city, lane, outer) for lane in city.lanes
        if _has_bike(lane, outer)
    ]
    crossings = [
        _crossing(_CROSSING + 2 * street.index + end, outline)
        for street in city.streets
        for end, outline in enumerate(street.crossings)
    ]
    areas = [street.area for street in city.streets]
    areas += [junction.area for junction in city.junctions]
    return dict(
        lane_segments=_by_id(lanes),
        pedestrian_crossings=_by_id(crossings),
        drivable_areas=_by_id(
            dict(id=_AREA + i, area_boundary=_points(area))
            for i, area in enumerate(areas)))


def local_map(whole: dict[str, dict[str, dict]],
              way: np.ndarray) -> dict[str, dict[str, dict]]:
    """What lies within ``MAP_REACH`` of the ego vehicle's way, (T, 2)."""
    return {
        kind: {
            key: record
            for key, record in records.items() if _is_near(record, way)
        }
        for kind, records in whole.items()
    }


def _is_near(record: dict, way: np.ndarray) -> bool:
    line = record.get('centerline') or record.get('area_boundary') or (
        record['edge1'])
    points = np.array([(p['x'], p['y']) for p in line])
    apart = np.abs(points[:, None] - way).max(-1)
    return bool(apart.min() < MAP_REACH)


def _by_id(records: Iterable[dict]) -> dict[str, dict]:
    return {str(record['id']): record for record in records}


def _points(xy: np.ndarray) -> list[dict]:
    """Centimetres, as in official maps; nothing twice in a row."""
    xy = np.round(xy, 2)
    keep = np.append(True, (np.diff(xy, axis=0) != 0).any(1))
    return [dict(x=x, y=y, z=0.) for x, y in xy[keep].tolist()]


def _segment(index: int, path: ArcPath, width: float, kind: str,
             marks: tuple[str, str], **rest) -> dict:
    left, right = (path.offset(side * width / 2) for side in (1., -1.))
    return dict(
        id=index,
        lane_type=kind,
        centerline=_points(path.polyline(_SAGITTA, _SPACING)),
        left_lane_boundary=_points(left.polyline(_SAGITTA)),
        right_lane_boundary=_points(right.polyline(_SAGITTA)),
        left_lane_mark_type=marks[0],
        right_lane_mark_type=marks[1],
        **rest)


def _lane(city: City, lane: Lane, outer: set[int]) -> dict:
    marks = ('NONE', 'NONE')
    right = None if lane.right < 0 else _LANE + lane.right
    if not lane.is_connector:
        marks = ('DOUBLE_SOLID_YELLOW' if lane.left < 0 else 'DASHED_WHITE',
                 'SOLID_WHITE' if lane.right < 0 else 'DASHED_WHITE')
    if _has_bike(lane, outer):
        right = _BIKE + lane.index
    return _segment(
        _LANE + lane.index,
        lane.path,
        LANE_WIDTH,
        'VEHICLE',
        marks,
        is_intersection=lane.is_connector,
        left_neighbor_id=None if lane.left < 0 else _LANE + lane.left,
        right_neighbor_id=right,
        predecessors=[_LANE + i for i in lane.entries],
        successors=[_LANE + i for i in lane.exits])


def _has_bike(lane: Lane, outer: set[int]) -> bool:
    """Whether a cycle lane runs along it."""
    if lane.is_connector:
        return lane.turn == 'right' and outer.issuperset(
            lane.entries + lane.exits)
    return lane.index in outer


def _bike(city: City, lane: Lane, outer: set[int]) -> dict:
    """The cycle lane to the right of a lane."""

    def beside(indices: list[int]) -> list[int]:
        return [
            _BIKE + i for i in indices if _has_bike(city.lanes[i], outer)
        ]

    return _segment(
        _BIKE + lane.index,
        lane.path.offset(-_TO_BIKE),
        CYCLE_WIDTH,
        'BIKE',
        ('NONE' if lane.is_connector else 'SOLID_WHITE', 'NONE'),
        is_intersection=lane.is_connector,
        left_neighbor_id=_LANE + lane.index,
        right_neighbor_id=None,
        predecessors=beside(lane.entries),
        successors=beside(lane.exits))


def _crossing(index: int, outline: np.ndarray) -> dict:
    """Both edges lead across the street."""
    low_right, high_right, high_left, low_left = outline
    return dict(
        id=index,
        edge1=_points(np.array([low_right, low_left])),
        edge2=_points(np.array([high_right, high_left])))
