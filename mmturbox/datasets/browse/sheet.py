"""The picture of a sample: cameras above, bird's eye views below."""

import datetime
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import draw
from .bev_panel import Surroundings, occupancy_view, overview
from .camera_panel import MAP_SIGHT, CameraPanel
from .samples import InfoFile, Sample
from .scene_tracks import SceneTracks, scene_tracks
from .sensor_data import read_occupancy, read_points
from .street_map import StreetMap
from .style import BOXES, EGO_WAY, FAINT, INK, LINES, OTHER, PAPER

# As they are mounted, seen from above.
RIG = ('CAM_FRONT_LEFT', 'CAM_FRONT', 'CAM_FRONT_RIGHT', 'CAM_BACK_LEFT',
       'CAM_BACK', 'CAM_BACK_RIGHT')
_COLUMNS = 3
_CLOSE_UP = 20.


@dataclass(frozen=True)
class Options:
    """What is drawn, and how large.

    Attributes:
        camera_width: of one camera's panel in pixels; all else follows.
        radius: of the bird's eye view, metres.
        sweeps: past scans beside the key frame's points.
        with_map, with_occupancy: where the data has them.
        camera_points: LiDAR points in the images, too.
        allow_missing: go on without files that do not exist.
        note: told what the data lacks and is not drawn, each once.
    """
    camera_width: int = 800
    radius: float = 50.
    sweeps: int = 0
    with_map: bool = True
    with_occupancy: bool = True
    camera_points: bool = False
    allow_missing: bool = False
    note: Callable[[str], None] = print


class SampleSheets:
    """Draws samples of an info file."""

    def __init__(self, infos: InfoFile, options: Options):
        self.infos, self.options = infos, options
        self._notes: set[str] = set()
        self._map = StreetMap(infos.root)
        self._scene: tuple[str, SceneTracks] | None = None

    def draw(self, index: int) -> np.ndarray:
        """(H, W, 3) uint8 blue, green, red.

        Raises:
            DataError: for a file that is missing (unless allowed) or broken.
        """
        options = self.options
        sample = self.infos[index]
        around = self._surroundings(sample)
        width = _COLUMNS * options.camera_width
        size = round(width * .58)
        lower = np.full((size, width, 3), PAPER[0], dtype=np.uint8)
        lower[:, :size] = overview(around, size, options.radius)
        side = width - size
        lower[-side:, size:] = (
            occupancy_view(around, side, options.radius)
            if around.occupancy is not None else overview(
                around, side, _CLOSE_UP))
        self._write(lower[:size - side, size:], sample, around)
        lower[:, size - 1:size + 1] = lower[-side - 1:-side + 1, size:] = 0
        return np.concatenate([*self._cameras(sample, around), lower])

    def _surroundings(self, sample: Sample) -> Surroundings:
        options = self.options
        points, past = read_points(sample, options.sweeps,
                                   options.allow_missing)
        patch = None
        if options.with_map:
            location = sample.record.get('map_location')
            lacking = self._map.lacks(location)
            if lacking:
                self._note(f'drawn without the map: {lacking}')
            else:
                # Some more, so that no edge of the patch is seen.
                reach = max(options.radius * 1.5, MAP_SIGHT + 10)
                patch = self._map.patch(location, sample.lidar2global[:2, 3],
                                        reach)
        occupancy = None
        if options.with_occupancy:
            occupancy = read_occupancy(sample)
        return Surroundings(sample, points, past, patch,
                            self._tracks(sample), occupancy)

    def _tracks(self, sample: Sample) -> SceneTracks | None:
        scene = sample.record.get('scene_token')
        if scene is None or 'timestamp' not in sample.record:
            self._note('drawn without ways: the records have no scene_token '
                       '(info files of create_data.py nuscenes do)')
            return None
        if self._scene is None or self._scene[0] != scene:
            self._scene = scene, scene_tracks(self.infos, scene)
        return self._scene[1]

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            self.options.note(text)

    def _cameras(self, sample: Sample,
                 around: Surroundings) -> list[np.ndarray]:
        """Rows of three panels."""
        channels = [c for c in RIG if c in sample.cameras]
        channels += sorted(c for c in sample.cameras if c not in RIG)
        if not channels:
            self._note('drawn without cameras: the records have no images')
        panels = [self._camera(sample, c, around) for c in channels]
        rows = []
        for first in range(0, len(panels), _COLUMNS):
            row = panels[first:first + _COLUMNS]
            out = np.full((max(len(p) for p in row),
                           _COLUMNS * self.options.camera_width, 3), PAPER[0],
                          dtype=np.uint8)
            for column, panel in enumerate(row):
                left = column * self.options.camera_width
                out[:len(panel), left:left + panel.shape[1]] = panel
            rows.append(out)
        return rows

    def _camera(self, sample: Sample, channel: str,
                around: Surroundings) -> np.ndarray:
        options = self.options
        panel = CameraPanel(sample, channel, options.camera_width,
                            options.allow_missing)
        text_size = options.camera_width / 1600
        if around.patch is not None:
            panel.draw_map(around.patch)
        if around.tracks is not None:
            panel.draw_way(
                around.tracks.around(sample.record['timestamp'])[1])
        if options.camera_points:
            panel.draw_points(around.points)
        panel.draw_boxes(sample.objects, text_size)
        panel.draw_label(1.4 * text_size)
        panel.image[:, -1] = panel.image[-1] = 0
        return panel.image

    def _write(self, image: np.ndarray, sample: Sample,
               around: Surroundings) -> None:
        """Title on the left, legend on the right of the free place."""
        unit = self.options.camera_width / 800
        entries = _legend(sample, around)
        step = 22 * unit
        for i, line in enumerate(_title(sample, around)):
            draw.text(image, line, (14 * unit, step * (i + 1.2)), .5 * unit)
        left = image.shape[1] - 190 * unit
        for i, (name, colour) in enumerate(entries):
            v = step * (i + 1) * .82
            draw.lines(image, [
                np.array([(left, v), (left + 24 * unit, v)])
            ], colour, max(round(6 * unit), 1))
            draw.text(image, name, (left + 34 * unit, v + 5 * unit),
                      .42 * unit, INK)


def _title(sample: Sample, around: Surroundings) -> list[str]:
    record = sample.record
    lines = [f'sample {record.get("sample_idx", "")}  {sample.token}']
    if record.get('scene_token'):
        lines.append(f'scene {record["scene_token"]}, key frame '
                     f'{record.get("frame_idx", "?")}')
    if 'timestamp' in record:
        time = datetime.datetime.fromtimestamp(
            record['timestamp'], datetime.UTC)
        lines.append(f'{time:%Y-%m-%d %H:%M:%S.%f} UTC  '
                     f'({record["timestamp"]:.6f} s)')
    x, y, _ = sample.ego2global[:3, 3]
    heading = np.degrees(
        np.arctan2(sample.ego2global[1, 0], sample.ego2global[0, 0]))
    place = record.get('map_location') or 'place unknown'
    lines.append(f'{place}  x {x:.1f} m, y {y:.1f} m, heading '
                 f'{heading:.1f} deg')
    status = record.get('ego_status')
    if status is not None:
        lines.append(
            f'CAN bus: speed {status[6]:.2f} m/s, acceleration '
            f'{status[0]:+.2f}, {status[1]:+.2f} m/s2,')
        lines.append(f'   yaw rate {status[5]:+.3f} rad/s, steering '
                     f'{status[9]:+.2f} rad')
    if sample.command:
        lines.append(f'command: {sample.command}')
    counts = Counter(sample.objects.names)
    lines.append(f'{len(sample.objects.names)} boxes, '
                 f'{np.count_nonzero(~sample.objects.seen)} without points '
                 f'(thin); {len(around.points)} LiDAR points')
    words = [f'{n} {name}' for name, n in counts.most_common()]
    lines += [', '.join(words[i:i + 4]) for i in range(0, len(words), 4)]
    lines += ['arrows: way of 1 s; dots: futures of the record;',
              'lines: 6 s back (pale) and ahead in other key frames']
    return lines


def _legend(sample: Sample, around: Surroundings) -> list[tuple]:
    present = set(sample.objects.names)
    entries = [(name, c) for name, c in BOXES.items() if name in present]
    if present - set(BOXES):
        entries.append(('other', OTHER))
    entries += [('ego way', EGO_WAY), ('ego past', FAINT)]
    if around.patch is not None:
        entries += [(name.replace('_', ' '), c) for name, c in LINES.items()]
    return entries
