"""The vector map around a scenario, read from its JSON file.

Frame: that of the tracks (city, metres). In official files the centre lines
lie on z = 0 and everything else at its height.
"""

import json
import os
from dataclasses import dataclass

import numpy as np

from ..info_check import DataError
from .ragged import Ragged

LANE_TYPES = ('VEHICLE', 'BIKE', 'BUS')
# Order of av2's ``LaneMarkType``.
MARK_TYPES = ('DASH_SOLID_YELLOW', 'DASH_SOLID_WHITE', 'DASHED_WHITE',
              'DASHED_YELLOW', 'DOUBLE_SOLID_YELLOW', 'DOUBLE_SOLID_WHITE',
              'DOUBLE_DASH_YELLOW', 'DOUBLE_DASH_WHITE', 'SOLID_YELLOW',
              'SOLID_WHITE', 'SOLID_DASH_WHITE', 'SOLID_DASH_YELLOW',
              'SOLID_BLUE', 'NONE', 'UNKNOWN')
NO_LANE = -1


@dataclass(frozen=True)
class VectorMap:
    """L lane segments, C crossings and A drivable areas.

    All in the order of the file. Ids may name lanes beyond the local map.

    Attributes:
        lane_id: (L,) int64.
        lane_type: (L,) int64 index into ``LANE_TYPES``.
        is_intersection: (L,) bool.
        centerline, left_boundary, right_boundary: L rows of (P, 3) float64
            points, in driving direction.
        left_mark, right_mark: (L,) int64 index into ``MARK_TYPES``.
        left_neighbor, right_neighbor: (L,) int64 ids or ``NO_LANE``.
        predecessors, successors: L rows of int64 ids.
        crossing_id: (C,) int64.
        crossing_edges: (C, 2, 2, 3) float64: edge, end, x y z; both edges
            lead the same way, that of the pedestrians.
        area_id: (A,) int64.
        areas: A rows of (P, 3) float64 corners of the drivable areas; the
            first one is not repeated.
    """
    lane_id: np.ndarray
    lane_type: np.ndarray
    is_intersection: np.ndarray
    centerline: Ragged
    left_boundary: Ragged
    right_boundary: Ragged
    left_mark: np.ndarray
    right_mark: np.ndarray
    left_neighbor: np.ndarray
    right_neighbor: np.ndarray
    predecessors: Ragged
    successors: Ragged
    crossing_id: np.ndarray
    crossing_edges: np.ndarray
    area_id: np.ndarray
    areas: Ragged

    @property
    def num_points(self) -> int:
        """Points of centre lines, boundaries and crossings."""
        return sum(
            len(line.values) for line in (self.centerline, self.left_boundary,
                                          self.right_boundary)
        ) + 4 * len(self.crossing_id)


def read_map(path: str | os.PathLike) -> VectorMap:
    """Read ``log_map_archive_{id}.json``.

    Agrees with av2's ``ArgoverseStaticMap.from_json``, and reads the centre
    lines too, which that leaves out.

    Raises:
        DataError: if the file is missing, broken or no such map; names it,
            what is wrong and the remedy.
    """
    if not os.path.isfile(path):
        raise DataError(f'{path} does not exist; copy the whole folder of '
                        'the scenario')
    try:
        with open(path, encoding='utf-8') as file:
            data = json.load(file)
        lanes, crossings, areas = (list(data[kind].values()) for kind in (
            'lane_segments', 'pedestrian_crossings', 'drivable_areas'))
        return _convert(lanes, crossings, areas)
    except KeyError as error:
        what = f'it lacks {error}'
    except (ValueError, TypeError, AttributeError) as error:
        what = str(error)
    raise DataError(f'{path} is no Argoverse 2 motion-forecasting map: '
                    f'{what}; download or make it anew')


def _convert(lanes: list[dict], crossings: list[dict],
             areas: list[dict]) -> VectorMap:

    def column(key: str, dtype: type = np.int64) -> np.ndarray:
        return np.array([lane[key] for lane in lanes], dtype=dtype)

    def index(key: str, names: tuple[str, ...]) -> np.ndarray:
        for lane in lanes:
            if lane[key] not in names:
                raise ValueError(f'it has the {key} {lane[key]!r}, known are '
                                 f'{", ".join(names)}')
        return np.array([names.index(lane[key]) for lane in lanes],
                        dtype=np.int64)

    def neighbor(key: str) -> np.ndarray:
        found = (lane[key] for lane in lanes)
        return np.array([NO_LANE if i is None else i for i in found],
                        dtype=np.int64)

    edges = [_points(c['edge1']) + _points(c['edge2']) for c in crossings]
    return VectorMap(
        lane_id=column('id'),
        lane_type=index('lane_type', LANE_TYPES),
        is_intersection=column('is_intersection', bool),
        centerline=_lines(lanes, 'centerline'),
        left_boundary=_lines(lanes, 'left_lane_boundary'),
        right_boundary=_lines(lanes, 'right_lane_boundary'),
        left_mark=index('left_lane_mark_type', MARK_TYPES),
        right_mark=index('right_lane_mark_type', MARK_TYPES),
        left_neighbor=neighbor('left_neighbor_id'),
        right_neighbor=neighbor('right_neighbor_id'),
        predecessors=_ids(lanes, 'predecessors'),
        successors=_ids(lanes, 'successors'),
        crossing_id=np.array([c['id'] for c in crossings], dtype=np.int64),
        crossing_edges=np.array(edges, dtype=np.float64).reshape(
            -1, 2, 2, 3),
        area_id=np.array([a['id'] for a in areas], dtype=np.int64),
        areas=_lines(areas, 'area_boundary'))


def _points(points: list[dict]) -> list[tuple[float, float, float]]:
    return [(p['x'], p['y'], p['z']) for p in points]


def _lines(records: list[dict], key: str) -> Ragged:
    return Ragged.pack([_points(r[key]) for r in records], (3, ), np.float64)


def _ids(lanes: list[dict], key: str) -> Ragged:
    return Ragged.pack([lane[key] for lane in lanes], (), np.int64)
