"""Records of the nuScenes map expansion: geometry that others refer to."""

from collections.abc import Iterable

import numpy as np

from .paths import ArcPath
from .tables import token

LAYERS = ('polygon', 'line', 'node', 'drivable_area', 'road_segment',
          'road_block', 'lane', 'ped_crossing', 'walkway', 'stop_line',
          'carpark_area', 'road_divider', 'lane_divider', 'traffic_light',
          'lane_connector')
# Coordinates are rounded to 0.1 mm, so that neighbours share their nodes.
_DECIMALS = 4
# What official records without an arc have for a radius, metres.
_NO_ARC = 999.999


class MapRecords:
    """Layers that grow record by record.

    Attributes:
        layers: records by layer, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.layers: dict[str, list[dict]] = {name: [] for name in LAYERS}
        self._node_tokens: dict[tuple[float, float], str] = {}

    def add(self, layer: str, key: str | None = None, **fields) -> str:
        """Add a record and return its token, by default a new one."""
        key = key or token('map', layer, len(self.layers[layer]))
        self.layers[layer].append(dict(token=key, **fields))
        return key

    def nodes(self, points: np.ndarray) -> list[str]:
        """Tokens of (P, 2) points, old ones for points met before.

        A point that repeats the one before it is left out.
        """
        tokens: list[str] = []
        for x, y in np.round(points, _DECIMALS).tolist():
            if (x, y) not in self._node_tokens:
                self._node_tokens[x, y] = self.add('node', x=x, y=y)
            key = self._node_tokens[x, y]
            if not tokens or tokens[-1] != key:
                tokens.append(key)
        return tokens

    def polygon(self, exterior: np.ndarray | list[str],
                holes: Iterable[np.ndarray] = ()) -> str:
        """Add a polygon of (P, 2) outlines, the exterior also as nodes.

        An outline need not be closed.
        """
        if isinstance(exterior, np.ndarray):
            exterior = self.nodes(exterior)
        return self.add(
            'polygon',
            exterior_node_tokens=_opened(exterior),
            holes=[
                dict(node_tokens=_opened(self.nodes(hole))) for hole in holes
            ])

    def line(self, points: np.ndarray) -> str:
        """Add a line of (P, 2) points."""
        return self.add('line', node_tokens=self.nodes(points))

    def exteriors(self, polygons: list[str]) -> list[np.ndarray]:
        """(P, 2) exteriors of polygons, given by their tokens."""
        xy = {key: point for point, key in self._node_tokens.items()}
        nodes = {
            record['token']: record['exterior_node_tokens']
            for record in self.layers['polygon']
        }
        return [np.array([xy[key] for key in nodes[p]]) for p in polygons]


def _opened(ring: list[str]) -> list[str]:
    return ring[:-1] if ring[0] == ring[-1] else ring


def arcline_records(path: ArcPath) -> list[dict]:
    """A path in the form of ``arcline_path_3``: arc, line, arc.

    Both arcs of a record have one radius, so a path may take several records;
    parts may have length 0.
    """
    records, first = [], 0
    while first < len(path.pieces):
        lengths, turns = [0., 0., 0.], [0., 0., 0.]
        last, slot = first, 0
        for length, turn in path.pieces[first:]:
            # Slots 0 and 2 take arcs, slot 1 a line.
            free = slot if (slot == 1) != bool(turn) else slot + 1
            other_radius = free == 2 and turns[0] and not np.isclose(
                abs(turn), abs(turns[0]), rtol=1e-9)
            if free > 2 or other_radius:
                break
            lengths[free], turns[free] = float(length), turn
            last, slot = last + 1, free + 1
        radius = 1 / abs(turns[0] or turns[2]) if any(turns) else _NO_ARC
        start, end = ('R' if turns[i] < 0 else 'L' for i in (0, 2))
        records.append(
            dict(
                start_pose=_pose(path.poses[first]),
                end_pose=_pose(path.poses[last]),
                shape=f'{start}S{end}',
                radius=float(radius),
                segment_length=lengths))
        first = last
    return records


def _pose(pose: np.ndarray) -> list[float]:
    x, y, heading = pose.tolist()
    return [x, y, principal(heading)]


def principal(angle: float) -> float:
    """The same angle from -pi to pi."""
    return float((angle + np.pi) % (2 * np.pi) - np.pi)
