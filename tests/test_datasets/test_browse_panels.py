"""What is drawn lies on what the synthetic sensors show."""

import cv2
import numpy as np
import pytest

from mmturbox.datasets.browse.bev_panel import (
    Surroundings,
    occupancy_view,
    overview,
)
from mmturbox.datasets.browse.camera_panel import CameraPanel
from mmturbox.datasets.browse.projection import corners, move
from mmturbox.datasets.browse.samples import InfoFile
from mmturbox.datasets.browse.scene_tracks import scene_tracks
from mmturbox.datasets.browse.sensor_data import read_points
from mmturbox.datasets.browse.street_map import StreetMap
from mmturbox.datasets.browse.style import BOXES, EGO_WAY, OCCUPANCY
from mmturbox.datasets.info_check import DataError
from mmturbox.datasets.synthetic.cameras import camera_rig
from mmturbox.datasets.synthetic.owners import GROUND, owner_map

CAMERAS = camera_rig((800, 450))


@pytest.fixture(scope='module')
def infos(occupancy_root):
    return InfoFile(occupancy_root / 'nuscenes_infos_train.pkl')


@pytest.fixture(scope='module')
def sample(infos):
    return infos[0]


@pytest.fixture(scope='module')
def patch(sample):
    streets = StreetMap(sample.root)
    return streets.patch(sample.record['map_location'],
                         sample.lidar2global[:2, 3], 70.)


def global_boxes(sample):
    boxes = sample.objects.boxes.copy()
    turn = np.arctan2(*sample.lidar2global[[1, 0], 0])
    boxes[:, :3] = move(sample.lidar2global, boxes[:, :3])
    boxes[:, 6] += turn
    return boxes


def owners_of(sample, camera):
    return owner_map(camera, sample.ego2global, global_boxes(sample))


def test_outlines_enclose_what_the_camera_shows_of_each_box(infos):
    """Nothing is painted outside an outline; unhidden boxes fill it."""
    filled = []
    for sample in (infos[0], infos[1]):
        for camera in CAMERAS:
            panel = CameraPanel(sample, camera.channel, 800)
            assert panel.scale == 1
            owners = owners_of(sample, camera)
            for i, uv in enumerate(panel.outlines(sample.objects.boxes)):
                seen = owners == i
                box = sample.objects.boxes[i]
                depth = move(panel.camera.lidar2cam, corners(box[None]))[
                    0, :, 2].min()
                if seen.sum() < 200 or depth < 1:
                    continue
                drawn = np.zeros(owners.shape, np.uint8)
                hull = cv2.convexHull(uv.reshape(-1, 2).astype(np.float32))
                cv2.fillConvexPoly(drawn, hull.astype(np.int32), 1)
                # Boxes of info files stand upright on the LiDAR, which is
                # tilted by half a degree; and two pixels of rounding.
                slack = 2 + camera.focal[0] / depth * box[3] / 2 * .009
                grown = cv2.dilate(drawn,
                                   np.ones([2 * int(slack) + 1] * 2))
                outside = seen & (grown == 0)
                assert not outside.any(), (camera.channel, i)
                filled.append(seen.sum() / drawn.sum())
    assert len(filled) > 30
    assert np.median(filled) > .9


def test_front_mark_leads_from_the_middle_to_the_front(sample):
    channel = 'CAM_FRONT'
    panel = CameraPanel(sample, channel, 800)
    box = np.array([[0., 12., -1., 4., 2., 1.6, np.pi / 2]])
    mark = panel.outlines(box)[0][4]
    lidar2cam = sample.cameras[channel].lidar2cam
    for uv, y in zip(mark, (12., 14.), strict=True):
        cam = move(lidar2cam, np.array([0., y, -1.8]))
        image = sample.cameras[channel].cam2img @ cam
        np.testing.assert_allclose(uv, image[:2] / image[2], atol=1e-6)


def test_dividers_lie_on_the_paint(infos, patch):
    """Yellow beside road dividers, and white on lane dividers but not
    beside them."""
    found = {}
    for sample in (infos[0], infos[1]):
        for camera in CAMERAS:
            panel = CameraPanel(sample, camera.channel, 800)
            ground = owners_of(sample, camera) == GROUND
            hsv = cv2.cvtColor(panel.image, cv2.COLOR_BGR2HSV).astype(int)
            for kind in ('road_divider', 'lane_divider'):
                for shift in (0., .12, .8):
                    u, v = ground_points(panel, patch.lines[kind], shift).T
                    pixels = hsv[v, u][ground[v, u]]
                    found.setdefault((kind, shift), []).append(pixels)
    found = {key: np.concatenate(rows) for key, rows in found.items()}
    yellow = {
        key: ((abs(p[:, 0] - 22) < 8) & (p[:, 1] > 90)).mean()
        for key, p in found.items()
    }
    white = {
        key: ((p[:, 1] < 60) & (p[:, 2] > 140)).mean()
        for key, p in found.items()
    }
    assert min(map(len, found.values())) > 50
    assert yellow['road_divider', .12] > .8
    assert yellow['road_divider', .8] < .05
    assert white['lane_divider', 0.] > .6
    assert white['lane_divider', .8] < .1


def ground_points(panel, lines, shift):
    """(P, 2) whole pixels of the lines moved sideways, near ones."""
    moved = []
    for line in lines:
        along = np.gradient(line, axis=0)
        left = np.stack([-along[:, 1], along[:, 0]], -1)
        left /= np.linalg.norm(left, axis=1, keepdims=True)
        moved.append(line + shift * left)
    uv = np.rint(panel.ground_lines(moved)[:, 0]).astype(int)
    # Paint farther than 12 m is less than a pixel wide.
    horizon, focal = panel.matrix[1, 2], panel.matrix[1, 1]
    height, width = panel.image.shape[:2]
    inside = ((uv >= 0) & (uv < (width, height))).all(1)
    return uv[inside & (uv[:, 1] > horizon + focal * 1.5 / 12)]


def test_a_missing_image_is_named_or_grey(infos, tmp_path):
    record = dict(infos.records[1], images={'CAM_FRONT': dict(
        infos.records[1]['images']['CAM_FRONT'], img_path='gone.jpg')})
    from mmturbox.datasets.browse.samples import Sample
    lacking = Sample(record, tmp_path, infos.classes, {})
    with pytest.raises(DataError, match=r'gone\.jpg.*--allow-missing'):
        CameraPanel(lacking, 'CAM_FRONT', 160)
    panel = CameraPanel(lacking, 'CAM_FRONT', 160, allow_missing=True)
    before = panel.image.copy()
    panel.draw_boxes(lacking.objects, .3)
    assert (panel.image == before).all()


def around(infos, sample, patch, **replaced):
    points, past = read_points(sample, 2, False)
    tracks = scene_tracks(infos, sample.record['scene_token'])
    parts = dict(points=points, past_points=past, patch=patch, tracks=tracks,
                 occupancy=None)
    return Surroundings(sample, **(parts | replaced))


def test_overview_has_boxes_and_the_way_where_they_are(infos, sample, patch):
    size, radius = 1000, 50.
    image = overview(around(infos, sample, patch), size, radius)

    def off(xy, colour):
        u, v = (size / 2 - .5 + 10 * np.array(xy) * (1, -1)).round()
        near = image[int(v) - 2:int(v) + 3, int(u) - 2:int(u) + 3].astype(int)
        return np.abs(near - colour).max(-1).min()

    assert off(sample.ego_future[-1], EGO_WAY) < 40
    shown = 0
    for box, name in zip(sample.objects.boxes, sample.objects.names,
                         strict=True):
        if np.abs(box[:2]).max() < 45:
            for corner in corners(box[None])[0, :2, :2]:
                assert off(corner, BOXES[name]) < 120
            shown += 1
    assert shown


def test_ways_of_other_key_frames_are_the_records_futures(synthetic_root):
    infos = InfoFile(synthetic_root / 'nuscenes_infos_train.pkl')
    sample = infos[0]
    tracks = scene_tracks(infos, sample.record['scene_token'])
    compared = 0
    for i, token in enumerate(sample.objects.tokens):
        _, ahead = tracks.around(sample.record['timestamp'], token)
        ahead = move(sample.global2lidar, ahead)[1:, :2]
        future = sample.objects.futures[i]
        future = future[~np.isnan(future[:, 0])][:len(ahead)]
        np.testing.assert_allclose(future, ahead[:len(future)], atol=.01)
        compared += len(future)
    assert compared > 20
    past, ahead = tracks.around(sample.record['timestamp'])
    assert len(past) == 1 and len(ahead) == 3
    np.testing.assert_allclose(
        move(sample.global2lidar, ahead)[1:, :2], sample.ego_future,
        atol=1e-3)


def test_occupancy_is_drawn_forward_up(infos, sample):
    """Voxel (x, y) = (150, 120): 25.25 m to the right, 10.25 m ahead."""
    voxels = np.array([[150, 120, 3, 11], [150, 120, 7, 16],
                       [10, 190, 3, 13]])
    image = occupancy_view(
        around(infos, sample, None, occupancy=voxels, tracks=None), 1000,
        50.)
    for (x, y), name in (((25.25, 10.25), 'vegetation'),
                         ((-44.75, 45.25), 'sidewalk')):
        u, v = round(500 + 10 * x), round(500 - 10 * y)
        assert tuple(image[v, u]) == OCCUPANCY[name]


def test_sweeps_meet_the_key_frame(sample, infos):
    """Standing walls: moved sweeps lie on the key frame's points."""
    from scipy.spatial import cKDTree
    key, past = read_points(infos[1], 5, False)
    assert len(past) > 4 * len(key)
    high = past[past[:, 2] > 1.]
    gap = cKDTree(key).query(high[::7])[0]
    assert np.median(gap) < .15
