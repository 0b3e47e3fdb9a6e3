"""The picture of an Argoverse 2 motion-forecasting scenario.

Frame: that of the city, x east, y north, metres; north is up.
"""

import os

import numpy as np

from ..argoverse2 import (
    CATEGORIES,
    MARK_TYPES,
    NUM_OBSERVED,
    OBJECT_TYPES,
    Tracks,
    VectorMap,
    read_scenario,
)
from ..argoverse2.tracks import FOCAL, SCORED
from . import draw
from .draw import BirdView
from .projection import corners
from .style import AREAS, CENTRE_LINE, EGO, LINES, Colour

AV_COLOUR, FOCAL_COLOUR, SCORED_COLOUR = (40, 140, 0), (0, 0, 230), (
    230, 90, 0)
OTHER_COLOUR = (130, 130, 130)
_YELLOW, _WHITE, _UNMARKED = (0, 170, 255), (150, 150, 150), (215, 215, 215)
_BIKE, _JUNCTION = (215, 238, 215), (222, 218, 226)
# Scenarios have no sizes: length and width that tell the kinds apart.
_SIZES = dict(
    vehicle=(4.6, 1.9),
    pedestrian=(.7, .7),
    motorcyclist=(2.1, .8),
    cyclist=(1.8, .7),
    bus=(11., 2.8),
    riderless_bicycle=(1.8, .7))
_MARGIN, _LEAST = 25., 60.
_NOW = NUM_OBSERVED - 1


def draw_scenario(path: str | os.PathLike, size: int = 1600) -> np.ndarray:
    """(H, W, 3) uint8 blue, green, red.

    Args:
        path: folder of the scenario or its parquet file.
        size: of the map view in pixels.

    Raises:
        DataError: if a file is missing or broken; names it.
    """
    scenario = read_scenario(path)
    tracks = scenario.tracks
    view = BirdView(size, *_window(tracks))
    _draw_map(view, scenario.map)
    # The ones that matter most come last.
    order = sorted(
        range(len(tracks)),
        key=lambda i: (i == tracks.focal_index, i == tracks.av_index,
                       tracks.category[i]))
    # Ways to come lie over those behind, which others drive later.
    for i in order:
        _draw_past(view, tracks, i)
    for i in order:
        _draw_present(view, tracks, i)
        _draw_future(view, tracks, i)
    for i in order:
        _write_name(view, tracks, i)
    unit = size / 1600
    side = np.full((size, round(450 * unit), 3), 255, dtype=np.uint8)
    _write(side, tracks, scenario.map, unit)
    return np.concatenate([view.image, side], axis=1)


def colour_of(tracks: Tracks, index: int) -> Colour:
    if index == tracks.av_index:
        return AV_COLOUR
    return {FOCAL: FOCAL_COLOUR, SCORED: SCORED_COLOUR}.get(
        int(tracks.category[index]), OTHER_COLOUR)


def _window(tracks: Tracks) -> tuple[np.ndarray, float]:
    """Centre and radius of a square around the tracks that matter."""
    matter = tracks.category >= SCORED
    matter[tracks.av_index] = True
    places = tracks.position[matter][tracks.valid[matter]]
    low, high = places.min(0), places.max(0)
    return (low + high) / 2, max((high - low).max() / 2 + _MARGIN, _LEAST)


def _draw_map(view: BirdView, streets: VectorMap) -> None:
    for i in range(len(streets.areas)):
        view.fill([streets.areas[i]], AREAS['drivable_area'])
    left, right = streets.left_boundary, streets.right_boundary
    for i in range(len(streets.lane_id)):
        outline = np.concatenate([left[i], right[i][::-1]])
        if streets.lane_type[i] == 1:
            view.fill([outline], _BIKE)
        elif streets.is_intersection[i]:
            view.fill([outline], _JUNCTION)
    for first, second in streets.crossing_edges:
        view.fill([np.concatenate([first, second[::-1]])],
                  AREAS['ped_crossing'])
        view.lines([first, second], LINES['ped_crossing'], 2)
    for i in range(len(streets.lane_id)):
        centre = streets.centerline[i]
        view.lines([centre], CENTRE_LINE)
        # An arrow in its middle shows which way it leads.
        middle = len(centre) // 2
        view.arrow(centre[middle - 1, :2], centre[middle, :2], CENTRE_LINE)
        for line, mark in ((left[i], streets.left_mark[i]),
                           (right[i], streets.right_mark[i])):
            name = MARK_TYPES[mark]
            colour = (_YELLOW if 'YELLOW' in name else _UNMARKED
                      if name in ('NONE', 'UNKNOWN') else _WHITE)
            view.lines([line], colour, 1 + (colour is not _UNMARKED))
    for i in range(len(streets.areas)):
        view.lines([streets.areas[i]], LINES['boundary'], 1, closed=True)


def _draw_past(view: BirdView, tracks: Tracks, index: int) -> None:
    colour = colour_of(tracks, index)
    pale = tuple(round(130 + .45 * c) for c in colour)
    for run in _runs(tracks.valid[index, :NUM_OBSERVED]):
        view.lines([tracks.position[index, run]], pale, _width(colour))


def _draw_future(view: BirdView, tracks: Tracks, index: int) -> None:
    """A dot each second."""
    colour = colour_of(tracks, index)
    ahead = tracks.valid[index].copy()
    ahead[:_NOW] = False
    for run in _runs(ahead):
        view.lines([tracks.position[index, run]], colour, _width(colour))
    seconds = np.arange(_NOW + 10, len(ahead), 10)
    view.dots(tracks.position[index, seconds[ahead[seconds]]], colour,
              1.5 + _width(colour))


def _write_name(view: BirdView, tracks: Tracks, index: int) -> None:
    place = tracks.position[index, _NOW]
    if tracks.valid[index, _NOW] and view.shows(place):
        colour, unit = colour_of(tracks, index), len(view.image) / 1600
        name = 'AV' if index == tracks.av_index else tracks.ids[index]
        size = .35 if colour is OTHER_COLOUR else .55
        draw.text(view.image, name, view.pixels(place) + (12, -12),
                  size * unit, colour, (255, 255, 255))


def _width(colour: Colour) -> int:
    return 1 if colour is OTHER_COLOUR else 3


def _draw_present(view: BirdView, tracks: Tracks, index: int) -> None:
    """Box and velocity."""
    if not tracks.valid[index, _NOW]:
        return
    colour = colour_of(tracks, index)
    place, heading = tracks.position[index, _NOW], tracks.heading[index, _NOW]
    kind = OBJECT_TYPES[tracks.object_type[index]]
    length, across = _SIZES.get(kind, (1., 1.))
    box = np.array([[*place, 0, length, across, 0, heading]])
    outline = corners(box)[0, [0, 1, 5, 4], :2]
    view.fill([outline], tuple(round(180 + .25 * c) for c in colour))
    view.lines([outline], colour, 2, closed=True)
    view.lines([np.stack([place, outline[:2].mean(0)])], colour, 2)
    velocity = tracks.velocity[index, _NOW]
    if np.hypot(*velocity) > .3:
        view.arrow(place, place + velocity, EGO, 1)


def _runs(valid: np.ndarray) -> list[np.ndarray]:
    """Steps without a gap."""
    steps = np.nonzero(valid)[0]
    return np.split(steps, np.nonzero(np.diff(steps) > 1)[0] + 1)


def _write(image: np.ndarray, tracks: Tracks, streets: VectorMap,
           unit: float) -> None:
    step = 24 * unit
    counts = np.bincount(tracks.category, minlength=len(CATEGORIES))
    kinds = np.bincount(tracks.object_type, minlength=len(OBJECT_TYPES))
    focal = tracks.focal_index
    speed = [
        np.hypot(*tracks.velocity[i, _NOW])
        for i in (tracks.av_index, focal)
    ]
    lines = [
        'scenario', f'  {tracks.scenario_id}', f'city {tracks.city}',
        f'focal track {tracks.ids[focal]} '
        f'({OBJECT_TYPES[tracks.object_type[focal]]})',
        f'AV {speed[0]:.1f} m/s, focal {speed[1]:.1f} m/s now', '',
        f'{len(tracks)} tracks:',
        *(f'  {n} {name}'
          for n, name in zip(counts, CATEGORIES, strict=True)), 'kinds:',
        *(f'  {n} {name}'
          for n, name in zip(kinds, OBJECT_TYPES, strict=True) if n), '',
        f'{len(streets.lane_id)} lanes, {len(streets.crossing_id)} crossings,'
        f' {len(streets.area_id)} areas', '', 'pale: 5 s of past',
        'bright: future, a dot each second', 'arrow: way of 1 s',
        'boxes: nominal sizes', ''
    ]
    for i, line in enumerate(lines):
        draw.text(image, line, (14 * unit, step * (i + 1.4)), .55 * unit)
    legend = [('AV', AV_COLOUR), ('focal', FOCAL_COLOUR),
              ('scored', SCORED_COLOUR), ('other tracks', OTHER_COLOUR),
              ('drivable area', LINES['boundary']),
              ('crossing', LINES['ped_crossing']), ('yellow mark', _YELLOW),
              ('white mark', _WHITE), ('unmarked', _UNMARKED),
              ('lane centre', CENTRE_LINE)]
    for i, (name, colour) in enumerate(legend):
        v = step * (i + len(lines) + 1.4)
        draw.lines(image, [np.array([(14, v), (44, v)]) * (unit, 1)], colour,
                   max(round(6 * unit), 1))
        draw.text(image, name, (56 * unit, v + 5 * unit), .55 * unit)
