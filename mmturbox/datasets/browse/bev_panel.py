"""Bird's eye views of a sample: frame ``lidar``, forward is up."""

from dataclasses import dataclass

import numpy as np

from . import draw
from .draw import BirdView
from .projection import corners, move
from .samples import Objects, Sample
from .scene_tracks import SceneTracks
from .street_map import MapPatch
from .style import (
    AREAS,
    BOXES,
    CENTRE_LINE,
    EGO,
    EGO_WAY,
    FAINT,
    LINES,
    OCCUPANCY,
    OTHER,
    Colour,
)

# The car of nuScenes, a Renault Zoe: length, width, and how far its middle
# is before its rear axle, metres.
_EGO_LENGTH, _EGO_WIDTH, _EGO_AHEAD = 4.08, 1.73, 1.35
# What an arrow shows: the way of one second.
_SECONDS = 1.
# SurroundOcc's grid in ``lidar``.
_VOXEL, _GRID_LOW, _GRID = .5, -50., 200


@dataclass(frozen=True)
class Surroundings:
    """All that is drawn around a sample; None for what there is not."""
    sample: Sample
    points: np.ndarray
    past_points: np.ndarray
    patch: MapPatch | None
    tracks: SceneTracks | None
    occupancy: np.ndarray | None


def overview(around: Surroundings, size: int, radius: float) -> np.ndarray:
    """Map, points, boxes, ways."""
    view = BirdView(size, (0, 0), radius)
    if around.patch is not None:
        _draw_map(view, around)
    view.rings(10. if radius <= 25 else 20., (205, 205, 205))
    _draw_points(view, around.past_points, (190, 170, 170))
    _draw_tracks(view, around)
    _draw_boxes(view, around.sample.objects)
    # Over the boxes: points lie on their sides.
    _draw_points(view, around.points, (70, 50, 50))
    _draw_ego(view, around)
    return view.image


def _draw_points(view: BirdView, points: np.ndarray, colour: Colour) -> None:
    draw.points(view.image, view.pixels(points), colour,
                2 if view.scale > 20 else 1)


def occupancy_view(around: Surroundings, size: int,
                   radius: float) -> np.ndarray:
    """The highest voxel of each column, boxes and the map's lines."""
    view = BirdView(size, (0, 0), radius)
    top = np.zeros((_GRID, _GRID), dtype=np.int64)
    voxels = around.occupancy
    voxels = voxels[np.argsort(voxels[:, 2], kind='stable')]
    top[voxels[:, 0], voxels[:, 1]] = voxels[:, 3]
    colours = np.array(list(OCCUPANCY.values()), dtype=np.uint8)
    # Each pixel's place and voxel.
    middle = (size - 1) / 2
    across = (np.arange(size) - middle) / view.scale
    index = np.floor((across - _GRID_LOW) / _VOXEL).astype(np.int64)
    inside = (index >= 0) & (index < _GRID)
    x, y = index[inside], index[::-1][inside[::-1]]
    view.image[np.ix_(inside[::-1], inside)] = colours[top[x, y[:, None]]]
    if around.patch is not None:
        for kind in ('boundary', 'ped_crossing'):
            view.lines(_to_lidar(around, around.patch.lines[kind]),
                       LINES[kind])
    for outline in corners(around.sample.objects.boxes)[:, [0, 1, 5, 4]]:
        view.lines([outline], EGO, 1, closed=True)
    _draw_ego(view, around)
    return view.image


def _to_lidar(around: Surroundings,
              lines: list[np.ndarray]) -> list[np.ndarray]:
    """Lines on z = 0 of the global frame."""
    matrix = around.sample.global2lidar
    return [line @ matrix[:2, :2].T + matrix[:2, 3] for line in lines]


def _draw_map(view: BirdView, around: Surroundings) -> None:
    patch = around.patch
    for layer, colour in AREAS.items():
        for rings in patch.areas[layer]:
            view.fill(_to_lidar(around, rings), colour)
    view.lines(_to_lidar(around, patch.centre_lines), CENTRE_LINE)
    for kind, colour in LINES.items():
        view.lines(_to_lidar(around, patch.lines[kind]), colour)


def _draw_tracks(view: BirdView, around: Surroundings) -> None:
    """Ways from the other key frames, and the record's futures as dots."""
    sample = around.sample
    objects = sample.objects
    for i, token in enumerate(objects.tokens):
        colour = BOXES.get(objects.names[i], OTHER)
        if around.tracks is not None and token is not None:
            past, future = around.tracks.around(
                sample.record['timestamp'], token)
            pale = tuple(round(150 + .4 * c) for c in colour)
            view.lines([move(sample.global2lidar, past)], pale, 2)
            view.lines([move(sample.global2lidar, future)], colour, 1)
        places = objects.futures[i]
        begin = objects.boxes[i, :2]
        moves = np.linalg.norm(places - begin, axis=-1) > .3
        view.dots(places[moves], colour, 2.5)


def _draw_boxes(view: BirdView, objects: Objects) -> None:
    shown = view.shows(objects.boxes, 10.)
    outlines = corners(objects.boxes)[:, [0, 1, 5, 4]]
    colours = [BOXES.get(name, OTHER) for name in objects.names]
    over = BirdView(len(view.image), view.centre, view.radius)
    over.image = view.image.copy()
    for i in np.nonzero(shown)[0]:
        over.fill([outlines[i]], colours[i])
    draw.blend(view.image, over.image, .25)
    for i in np.nonzero(shown)[0]:
        thick = 1 + bool(objects.seen[i])
        view.lines([outlines[i]], colours[i], thick, closed=True)
        # From the middle to the middle of the front side.
        centre = objects.boxes[i, :2]
        view.lines([np.stack([centre, outlines[i, :2, :2].mean(0)])],
                   colours[i], thick)
        velocity = objects.velocity[i]
        if np.hypot(*velocity) > .3:
            view.arrow(centre, centre + velocity * _SECONDS, colours[i], 2)
    for i in np.nonzero(shown & (objects.track >= 0))[0]:
        at = view.pixels(outlines[i]).max(0) * (1, 0) + view.pixels(
            outlines[i]).min(0) * (0, 1)
        draw.text(view.image, str(objects.track[i]), at, .35, colours[i])


def _draw_ego(view: BirdView, around: Surroundings) -> None:
    sample = around.sample
    half, side = _EGO_LENGTH / 2, _EGO_WIDTH / 2
    outline = np.array([(half, side), (half, -side), (-half, -side),
                        (-half, side)]) + (_EGO_AHEAD, 0)
    outline = np.column_stack([outline, np.zeros(4)])
    outline = (outline - sample.lidar2ego[:3, 3]) @ sample.lidar2ego[:3, :3]
    if around.tracks is not None:
        past, future = around.tracks.around(sample.record['timestamp'])
        view.lines([move(sample.global2lidar, past)], FAINT, 2)
        view.lines([move(sample.global2lidar, future)], EGO_WAY, 2)
    view.lines([outline], EGO, 2, closed=True)
    view.lines([np.stack([outline.mean(0), outline[:2].mean(0)])], EGO, 2)
    view.dots(sample.ego_future, EGO_WAY, 4)
