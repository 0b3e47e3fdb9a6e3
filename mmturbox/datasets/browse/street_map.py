"""The map expansion around a place, through the devkit's ``NuScenesMap``.

The map is flat: all of it is taken to lie on z = 0 of the global frame, as
the ground of nuScenes' poses does. Where a real road rises or the vehicle
pitches, projected lines part from the painted ones.
"""

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..info_check import DataError
from .style import AREAS

_LINES = ('lane_divider', 'road_divider')


@dataclass(frozen=True)
class MapPatch:
    """What lies around a place; global frame, metres.

    Attributes:
        areas: by layer, polygons as lists of (P, 2) rings, holes included.
        lines: by kind, (P, 2) polylines; ``boundary`` is the edge of what
            can be driven on.
        centre_lines: (P, 2) of lanes and of ways through junctions.
    """
    areas: dict[str, list[list[np.ndarray]]]
    lines: dict[str, list[np.ndarray]]
    centre_lines: list[np.ndarray]


class StreetMap:
    """Maps of a data root, each opened once.

    Args:
        root: data root with ``maps/expansion``.
    """

    def __init__(self, root: str | os.PathLike):
        self.root = Path(root)
        self._open = lru_cache(maxsize=None)(self._read)

    def lacks(self, location: str | None) -> str | None:
        """Why there is no map of a location, None if there is one."""
        if not location:
            return ('the records have no map_location (info files of '
                    'create_data.py nuscenes do)')
        path = self._path(location)
        return None if path.is_file() else f'there is no {path}'

    def patch(self, location: str, place: np.ndarray,
              radius: float) -> MapPatch:
        """What is in the square around (2,) ``place``.

        Raises:
            DataError: if the devkit cannot read the map; names the file.
        """
        from shapely import box, unary_union
        devkit = self._open(location)
        x, y = (float(c) for c in place[:2])
        side = 2 * radius
        found = dict(
            devkit.get_map_geom((x, y, side, side), 0, [*AREAS, *_LINES]))
        areas = {
            layer: [_rings(p, (x, y)) for shape in found.get(layer, ())
                    for p in _parts(shape)]
            for layer in AREAS
        }
        lines = {
            layer: [np.asarray(p.coords) + (x, y)
                    for shape in found.get(layer, ()) for p in _parts(shape)]
            for layer in _LINES
        }
        for layer in ('ped_crossing', 'stop_line'):
            lines[layer] = [rings[0] for rings in areas[layer]]
        # Records of one area abut; what the cut adds lies on the square.
        whole = unary_union(found.get('drivable_area', []))
        edge = whole.boundary.intersection(
            box(-radius, -radius, radius, radius).buffer(-.01))
        lines['boundary'] = [
            np.asarray(p.coords) + (x, y) for p in _parts(edge)
        ]
        return MapPatch(areas, lines, _centre_lines(devkit, x, y, radius))

    def _path(self, location: str) -> Path:
        return self.root / 'maps' / 'expansion' / f'{location}.json'

    def _read(self, location: str) -> Any:
        from nuscenes.map_expansion.map_api import NuScenesMap
        try:
            return NuScenesMap(os.fspath(self.root), location)
        except (AssertionError, KeyError, json.JSONDecodeError) as error:
            raise DataError(
                f'the devkit cannot read the map {self._path(location)} '
                f'({type(error).__name__}: {error}); unpack the map expansion '
                'again, or leave the map out with --no-map') from error


def _centre_lines(devkit: Any, x: float, y: float,
                  radius: float) -> list[np.ndarray]:
    layers = ['lane', 'lane_connector']
    near = devkit.get_records_in_radius(x, y, radius, layers)
    tokens = near['lane'] + near['lane_connector']
    found = devkit.discretize_lanes(tokens, 1.)
    return [np.array(line)[:, :2] for line in found.values() if len(line)]


def _parts(shape: Any) -> list[Any]:
    """Simple shapes of one that may have several."""
    return [p for p in getattr(shape, 'geoms', [shape]) if not p.is_empty]


def _rings(polygon: Any, shift: tuple[float, float]) -> list[np.ndarray]:
    return [
        np.asarray(ring.coords) + shift
        for ring in (polygon.exterior, *polygon.interiors)
    ]
