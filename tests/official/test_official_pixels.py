"""Images show each box where the devkit projects it."""

import dataclasses

import numpy as np
import pytest
from nuscenes.nuscenes import NuScenes
from nuscenes.utils.geometry_utils import (
    BoxVisibility,
    box_in_image,
    view_points,
)

from mmturbox.datasets import synthetic
from mmturbox.datasets.synthetic.appearance import Looks
from mmturbox.datasets.synthetic.cameras import FULL_SIZE, camera_rig
from mmturbox.datasets.synthetic.geometry import (
    inverse_rigid,
    rigid,
    transform,
    yaw_quaternion,
)
from mmturbox.datasets.synthetic.owners import GROUND, owner_map
from mmturbox.datasets.synthetic.render import JPEG_QUALITY, Renderer
from mmturbox.datasets.synthetic.scene import Contents
from mmturbox.datasets.synthetic.tables import VERSION
from mmturbox.datasets.synthetic.texture import GroundTexture

# Pixels that are left around a box when others are measured.
MARGIN = 12


@pytest.fixture(scope='module')
def full_size(tmp_path_factory):
    """A set of its own, for images of 1600 x 900."""
    root = tmp_path_factory.mktemp('pixels') / 'set'
    assert synthetic.create_synthetic_nuscenes(
        root, 2, 2, contents=Contents(FULL_SIZE))
    return NuScenes(VERSION, str(root), verbose=False)


class Studio:
    """Takes the picture of a key frame again, some boxes repainted."""

    def __init__(self, truth, sample) -> None:
        world, spec = truth.world, truth.spec
        self.looks = Looks(world.kind, world.size, world.structure_kind,
                           world.structures[:, 3:6], spec.rng(2),
                           world.goes)
        ground = GroundTexture(
            world.city, np.random.default_rng((spec.seed, 10**6 + 1)))
        self.renderer = Renderer(ground, self.looks, spec.rng(3))
        self.boxes, self.pose = truth.boxes(sample), truth.ego2global(sample)
        # Six images from one key frame to the next.
        self.rng = lambda place: spec.rng(4, 6 * sample, place)

    def luma(self, place, camera, repainted=()) -> np.ndarray:
        """(H, W) int64 of the stored image, as if ``repainted``."""
        import cv2
        self.renderer.looks = [
            repaint(self.looks[i]) if i in repainted else self.looks[i]
            for i in range(len(self.looks))
        ]
        image = self.renderer.image(camera, self.pose, self.boxes,
                                    self.rng(place))
        _, data = cv2.imencode('.jpg', image,
                               [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        return cv2.imdecode(data, cv2.IMREAD_GRAYSCALE).astype(np.int64)


def repaint(look):
    """Dark for bright and bright for dark."""

    def other(colours):
        dark = 255 - .35 * (255 - colours)
        bright = colours.mean(-1, keepdims=True) > 110
        return np.where(bright, .35 * colours, dark)

    return tuple(
        dataclasses.replace(face, colours=other(face.colours))
        for face in look)


def projected(nusc, truth, token) -> dict[int, np.ndarray]:
    """Actor to the (8, 2) pixels of its corners, the devkit's, of boxes that
    are wholly in the image."""
    _, boxes, intrinsic = nusc.get_sample_data(token)
    row = nusc.get('sample_data', token)
    size = row['width'], row['height']
    found = {}
    for box in boxes:
        if box_in_image(box, intrinsic, size, BoxVisibility.ALL):
            ann = nusc.get('sample_annotation', box.token)
            found[truth.actor_of[ann['instance_token']]] = view_points(
                box.corners(), intrinsic, normalize=True)[:2].T
    return found


def free_boxes(corners, owners, camera, studio) -> list[tuple]:
    """Actor and corners of boxes that nothing hides."""
    free = []
    for actor, uv in corners.items():
        alone = owner_map(camera, studio.pose, studio.boxes[[actor]]) == 0
        if alone.sum() == (owners == actor).sum() > 60:
            free.append((actor, uv))
    return free


def apart(free) -> tuple[list, list]:
    """Boxes whose surroundings do not meet, and the rest."""
    chosen, rest = [], []
    for actor, uv in free:
        low, high = uv.min(0) - 2 * MARGIN, uv.max(0) + 2 * MARGIN
        meets = any(
            (low < other.max(0)).all() and (other.min(0) < high).all()
            for _, other in chosen)
        (rest if meets else chosen).append((actor, uv))
    return chosen, rest


def silhouette_gap(changed, uv) -> float:
    """How far, in pixels, the changed ones and the projected outline part.

    Args:
        changed: (H, W) by how much pixels changed with the box's colours.
        uv: (8, 2) projected corners.
    """
    import cv2
    left, top = np.maximum(np.floor(uv.min(0)).astype(int) - MARGIN, 0)
    right, low = np.ceil(uv.max(0)).astype(int) + MARGIN
    part = changed[top:low, left:right]
    hull = cv2.convexHull(uv.astype(np.float32))
    inside = np.zeros(part.shape, dtype=np.uint8)
    cv2.fillConvexPoly(inside, np.rint(hull - [left, top]).astype(np.int32),
                       1)
    rows, columns = np.nonzero(
        part > .4 * np.median(part[inside.astype(bool)]))
    pixels = np.stack([columns + left, rows + top], 1).astype(float)
    # Pixels beyond the outline, and corners of it that no pixel reaches.
    beyond = max(-cv2.pointPolygonTest(hull, tuple(p), True) for p in pixels)
    short = max(
        np.linalg.norm(pixels - corner, axis=1).min() for corner in hull[:, 0])
    return max(beyond, short)


@pytest.mark.parametrize('scene', [0, 1])
def test_corners_are_on_the_silhouette_to_a_pixel(full_size, scene_truth,
                                                  scene):
    import cv2
    nusc, truth = full_size, scene_truth(scene, 2, FULL_SIZE)
    sample = nusc.get('sample', nusc.scene[scene]['last_sample_token'])
    studio, gaps = Studio(truth, 1), []
    for place, camera in enumerate(camera_rig()):
        token = sample['data'][camera.channel]
        stored = cv2.imread(
            nusc.get_sample_data_path(token), cv2.IMREAD_GRAYSCALE)
        assert np.array_equal(stored, studio.luma(place, camera)), (
            'this is not how the image was made: bring Studio up to date')
        corners = projected(nusc, truth, token)
        owners = owner_map(camera, studio.pose, studio.boxes)
        rest = free_boxes(corners, owners, camera, studio)
        while rest:
            chosen, rest = apart(rest)
            other = studio.luma(place, camera, [a for a, _ in chosen])
            changed = np.abs(stored - other)
            gaps += [silhouette_gap(changed, uv) for _, uv in chosen]
    assert len(gaps) > 5
    assert max(gaps) < 1.
    # The measure tells a shift of two pixels.
    assert silhouette_gap(changed, chosen[-1][1] + 2.) > 1.2


def test_lidar_depths_land_on_the_pixels_of_their_objects(nusc, truths):
    truth, number = truths[0], truths[0].spec.num_samples - 1
    width, height = truth.spec.contents.image_size
    sample = nusc.get('sample', nusc.scene[0]['last_sample_token'])
    boxes, pose = truth.boxes(number), truth.ego2global(number)
    for camera in truth.spec.contents.cameras:
        points, depth, _ = nusc.explorer.map_pointcloud_to_image(
            sample['data']['LIDAR_TOP'], sample['data'][camera.channel])
        rays = np.linalg.inv(camera.cam2img) @ points
        places = transform(pose @ camera.cam2ego, (rays * depth).T)
        hit = box_of(places, boxes)
        columns, rows = np.rint(points[:2]).astype(int)
        owners = owner_map(camera, pose, boxes)[
            rows.clip(0, height - 1),
            columns.clip(0, width - 1)]
        on_object = hit >= 0
        assert on_object.sum() > 500
        # The LiDAR sees past some edges that hide from the camera.
        assert (owners == hit)[on_object].mean() > .9, camera.channel
        assert np.abs(places[~on_object, 2]).max() < .1
        assert (owners == GROUND)[~on_object].mean() > .95, camera.channel


def box_of(points, boxes) -> np.ndarray:
    """(P,) index of the box that holds or touches a point, or -1."""
    owner = np.full(len(points), -1)
    for i, box in enumerate(boxes):
        local = transform(
            inverse_rigid(rigid(yaw_quaternion(box[6]), box[:3])), points)
        owner[(np.abs(local) < box[3:6] / 2 + .06).all(1)] = i
    return owner


def test_visibility_is_the_share_of_pixels_that_are_seen(nusc, truths):
    """Counted on larger images than the annotator looks at."""
    truth, number = truths[1], truths[1].spec.num_samples - 1
    sample = nusc.get('sample', nusc.scene[1]['last_sample_token'])
    boxes, pose = truth.boxes(number), truth.ego2global(number)
    cameras = camera_rig((800, 450))
    maps = [owner_map(camera, pose, boxes) for camera in cameras]
    levels = dict.fromkeys('1234', 0)
    for token in sample['anns']:
        ann = nusc.get('sample_annotation', token)
        actor = truth.actor_of[ann['instance_token']]
        seen = sum((owners == actor).sum() for owners in maps)
        alone = sum((owner_map(camera, pose, boxes[[actor]]) == 0).sum()
                    for camera in cameras)
        low, high = dict(
            zip('1234', ((0., .4), (.4, .6), (.6, .8), (.8, 1.)),
                strict=True))[ann['visibility_token']]
        # A pixel of the smaller images is four of these.
        slack = .03 + 20 / max(alone, 20)
        assert low - slack <= seen / max(alone, 1) <= high + slack
        levels[ann['visibility_token']] += 1
    assert min(levels.values()) > 0
    assert levels['4'] > 10


def test_what_is_seen_is_in_the_image_by_the_devkits_rule(nusc, truths):
    truth, number = truths[0], truths[0].spec.num_samples - 1
    sample = nusc.get('sample', nusc.scene[0]['last_sample_token'])
    boxes, pose = truth.boxes(number), truth.ego2global(number)
    annotated = {
        truth.actor_of[nusc.get('sample_annotation', t)['instance_token']]
        for t in sample['anns']
    }
    for camera in truth.spec.contents.cameras:
        listed = {
            truth.actor_of[nusc.get('sample_annotation',
                                    box.token)['instance_token']]
            for box in nusc.get_sample_data(sample['data'][camera.channel])[1]
        }
        owners, pixels = np.unique(
            owner_map(camera, pose, boxes), return_counts=True)
        # The devkit lists a box by its corners and from 0.1 m on.
        seen = {
            int(i) for i, n in zip(owners, pixels, strict=True)
            if 0 <= i < len(truth.world.kind) and n > 30
        }
        assert seen & annotated <= listed, camera.channel
