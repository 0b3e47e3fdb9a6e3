"""Images of the synthetic world, measured on their pixels."""


import cv2
import numpy as np
import pytest

from mmturbox.datasets.synthetic.appearance import Looks
from mmturbox.datasets.synthetic.cameras import camera_rig
from mmturbox.datasets.synthetic.city import City
from mmturbox.datasets.synthetic.geometry import rigid, yaw_quaternion
from mmturbox.datasets.synthetic.kinds import KIND_INDEX, KINDS
from mmturbox.datasets.synthetic.owners import SKY, owner_map
from mmturbox.datasets.synthetic.render import Renderer, encode_jpeg
from mmturbox.datasets.synthetic.sheets import FACES, Face, Sheet
from mmturbox.datasets.synthetic.texture import GroundTexture

NO_BOXES = np.zeros((0, 7))


@pytest.fixture(scope='module')
def city():
    return City.generate(np.random.default_rng(0))


@pytest.fixture(scope='module')
def ground(city):
    return GroundTexture(city, np.random.default_rng(1))


@pytest.fixture(scope='module')
def street(city):
    """The longest with two lanes each way."""
    return max((s for s in city.streets if s.lanes_each_way == 2),
               key=lambda s: s.centre.length)


def _pose(city, street, s=20.):
    """The ego vehicle in the inner lane of ``street``."""
    xy, heading = city.lanes[street.forward[0]].path.at(s)
    return rigid(yaw_quaternion(float(heading)), [*xy, 0.])


def _renderer(ground, looks=(), seed=2):
    return Renderer(ground, looks, np.random.default_rng(seed))


def _render(renderer, camera, pose, boxes=NO_BOXES, seed=3):
    return renderer.image(camera, pose, boxes, np.random.default_rng(seed))


def _ahead(pose, names, x, y=0., yaw=0.):
    """Boxes of the named kinds, places in the ego frame; and their looks."""
    kind = np.array([KIND_INDEX[name] for name in names])
    size = np.array([KINDS[k].size for k in kind])
    boxes = np.zeros((len(kind), 7))
    boxes[:, 0], boxes[:, 1], boxes[:, 2] = x, y, size[:, 2] / 2
    boxes[:, :3] = boxes[:, :3] @ pose[:3, :3].T + pose[:3, 3]
    boxes[:, 3:6] = size
    boxes[:, 6] = yaw + np.arctan2(pose[1, 0], pose[0, 0])
    return boxes, Looks(kind, size, np.zeros(0, dtype=int),
                        np.zeros((0, 3)), np.random.default_rng(4))


def _plain(size, colour):
    length, width, height = size
    extents = ((width, height), (length, height)) * 2 + ((length, width), )
    return tuple(Face.of(Sheet(a, b, colour)) for a, b in extents)


def _pixel(camera, pose, points):
    homogeneous = np.column_stack([points, np.zeros(len(points)),
                                   np.ones(len(points))])
    uvw = homogeneous @ camera.global2img(pose).T
    return uvw[:, :2] / uvw[:, 2:], uvw[:, 2]


def _at(image, uv):
    return image[tuple(np.rint(uv[..., ::-1]).astype(int).T)].astype(int)


@pytest.mark.parametrize('channel', range(6))
def test_the_image_shows_a_box_where_its_corners_project(
        city, street, ground, channel):
    camera, pose = camera_rig()[channel], _pose(city, street)
    # 18 m along the camera's view, in a colour that nothing else has.
    boxes, _ = _ahead(pose, ['truck'], 18. * np.cos(camera.yaw),
                      18. * np.sin(camera.yaw), .8)
    renderer = _renderer(ground, [_plain(boxes[0, 3:6], (250., 10., 250.))])
    image = _render(renderer, camera, pose, boxes).astype(int)
    shown = np.minimum(image[..., 0], image[..., 2]) - image[..., 1] > 60
    signs = np.stack(np.meshgrid(*[[-.5, .5]] * 3), -1).reshape(-1, 3)
    turn = rigid(yaw_quaternion(boxes[0, 6]), boxes[0, :3])
    corners = np.column_stack([signs * boxes[0, 3:6], np.ones(8)]) @ turn.T
    projected = corners @ camera.global2img(pose).T
    projected = projected[:, :2] / projected[:, 2:]
    hull = cv2.convexHull(projected.astype(np.float32))[:, 0]
    v, u = np.nonzero(shown)
    pixels = np.stack([u, v], 1)
    for corner in hull:
        assert np.linalg.norm(pixels - corner, axis=1).min() <= 1.
    np.testing.assert_allclose(pixels.min(0), projected.min(0), atol=1.)
    np.testing.assert_allclose(pixels.max(0), projected.max(0), atol=1.)
    owned = owner_map(camera, pose, boxes) == 0
    assert (owned == shown).all()


def test_lane_markings_show_where_they_are_painted(city, street, ground):
    camera, pose = camera_rig()[0], _pose(city, street)
    image = _render(_renderer(ground), camera, pose)
    s = np.arange(32., 50., 1.)
    # One of the two yellow lines, the asphalt beside it, the cycle line.
    yellow, asphalt, white = (
        _at(image, _pixel(camera, pose,
                          street.centre.offset(side).at(s)[0])[0])
        for side in (.12, .7, -7.))
    assert (yellow[:, 2] - yellow[:, 0] > 40).all()
    assert (abs(asphalt[:, 2] - asphalt[:, 0]) < 20).all()
    assert (white.min(1) - asphalt.max(1) > 40).all()


def test_crossings_are_striped_and_dividers_dashed(city, street, ground):
    camera = camera_rig()[0]
    pose = _pose(city, street, street.centre.length - 14.)
    image = _render(_renderer(ground), camera, pose)
    across = street.centre.length - 2.5
    side = np.arange(-4., 4., .05)
    xy = np.stack([street.centre.offset(d).at(across)[0] for d in side])
    grey = _at(image, _pixel(camera, pose, xy)[0])[:, 1]
    # Bars half a metre wide, half a metre apart.
    flips = np.count_nonzero(np.diff(grey > (grey.max() + grey.min()) / 2))
    assert flips in (15, 16, 17)
    pose = _pose(city, street)
    image = _render(_renderer(ground), camera, pose)
    s = np.arange(32., 50., .1)
    xy = street.centre.offset(-3.5).at(s)[0]
    grey = _at(image, _pixel(camera, pose, xy)[0])[:, 1]
    # 3 m of 9 m are painted.
    assert .2 < (grey > 150).mean() < .45


def test_a_smaller_image_shows_the_same_scene(city, street, ground):
    pose = _pose(city, street)
    boxes, looks = _ahead(pose, ['car', 'bus', 'pedestrian'],
                          [12., 25., 9.], [0., 4., -3.])
    renderer = _renderer(ground, looks)
    for full, small in zip(
            camera_rig()[:2], camera_rig((400, 225)), strict=False):
        averaged = cv2.resize(
            _render(renderer, full, pose, boxes), (400, 225),
            interpolation=cv2.INTER_AREA)
        image = _render(renderer, small, pose, boxes)
        assert image.shape == (225, 400, 3)
        apart = np.abs(averaged.astype(int) - image).max(-1)
        # Edges differ, by the fill and by the averaging; nothing else does.
        assert np.median(apart) <= 4 and (apart > 25).mean() < .03


def test_the_same_calls_give_the_same_file(city, street, ground):
    pose = _pose(city, street)
    boxes, looks = _ahead(pose, ['car', 'truck'], [12., 25.], [0., 4.])
    camera = camera_rig((800, 450))[0]
    threads = cv2.getNumThreads()
    files = []
    try:
        for i, count in enumerate((1, 4)):
            cv2.setNumThreads(count)
            fresh = GroundTexture(city, np.random.default_rng(1))
            # Elsewhere first, and the other box first.
            fresh.around(*(pose[:2, 3] + 100. * i))
            looks = _ahead(pose, ['car', 'truck'], [12., 25.], [0., 4.])[1]
            looks[i]
            image = _render(_renderer(fresh, looks), camera, pose, boxes)
            files.append(encode_jpeg(image))
    finally:
        cv2.setNumThreads(threads)
    assert files[0] == files[1]
    other = _render(_renderer(fresh, looks), camera, pose, boxes, seed=9)
    assert (other != image).any()


def test_front_and_back_of_a_car_differ(city, street, ground):
    camera, pose = camera_rig()[0], _pose(city, street)
    red, bright = [], []
    for yaw in (0., np.pi):
        boxes, looks = _ahead(pose, ['car'], 14., 0., yaw)
        image = _render(_renderer(ground, looks), camera, pose, boxes)
        b, g, r = np.moveaxis(
            image[owner_map(camera, pose, boxes) == 0].astype(int), -1, 0)
        red.append(((r > 120) & (g < 60) & (b < 60)).mean())
        bright.append(((r > 180) & (g > 180) & (b > 150) & (r > b)).mean())
    assert red[0] > .03 and red[1] < .005
    assert bright[1] > .02


def test_every_kind_has_a_colouring_of_its_own(city, street, ground):
    names = [kind.name for kind in KINDS]
    camera, pose = camera_rig()[0], _pose(city, street)
    means = []
    for name in names:
        boxes, looks = _ahead(pose, [name], 16., 0., .6)
        assert len(looks[0]) == len(FACES)
        image = _render(_renderer(ground, looks), camera, pose, boxes)
        pixels = image[owner_map(camera, pose, boxes) == 0].reshape(-1, 3)
        means.append([*pixels.mean(0), *pixels.std(0)])
    apart = np.linalg.norm(np.array(means)[:, None] - np.array(means), axis=-1)
    assert apart[~np.eye(len(names), dtype=bool)].min() > 8.


def test_polygons_stay_on_their_faces():
    rng = np.random.default_rng(0)
    kind = np.arange(len(KINDS))
    size = np.array([k.size for k in KINDS]) * rng.uniform(.9, 1.1, (10, 3))
    structure_size = np.array([[12., 8., 9.], [3., 3., 6.], [9., 1., 1.2]])
    looks = Looks(kind, size, np.array([0, 1, 1]), structure_size, rng)
    assert len(looks) == 13
    for i, (length, width, height) in enumerate([*size, *structure_size]):
        extents = [(width, height), (length, height)] * 2 + [(length, width)]
        for face, extent in zip(looks[i], extents, strict=True):
            np.testing.assert_allclose(face.points[:4].max(0), [*extent, 1.])
            assert (face.points[:, :2] >= 0).all()
            assert (face.points[:, :2] <= np.array(extent) + 1e-9).all()
            assert face.stops[-1] == len(face.points)
            assert ((face.colours >= 0) & (face.colours <= 255)).all()


def test_the_distant_ground_does_not_flicker(city, street, ground):
    """Ten centimetres on, far rows look as they did."""
    camera, renderer = camera_rig()[0], _renderer(ground)
    pose = _pose(city, street)
    # The same sensor noise on both.
    first = _render(renderer, camera, pose).astype(int)
    pose[:2, 3] += .1 * pose[:2, 0]
    second = _render(renderer, camera, pose)
    # From some 25 to 100 m ahead.
    rows = slice(505, 560)
    assert np.abs(first[rows] - second[rows]).mean() < 2.5


def test_without_boxes_there_are_ground_below_and_sky_above(
        city, street, ground):
    camera, pose = camera_rig((400, 225))[3], _pose(city, street)
    image = _render(_renderer(ground), camera, pose).astype(int)
    above = owner_map(camera, pose, NO_BOXES) == SKY
    assert (image[above][:, 0] > image[above][:, 2]).mean() > .95
    assert image[above].mean() > image[~above].mean() + 30


def test_a_look_for_each_box_is_demanded(city, street, ground):
    pose = _pose(city, street)
    boxes, looks = _ahead(pose, ['car', 'truck'], [12., 25.])
    with pytest.raises(ValueError, match='2 looks for 1 boxes'):
        _render(_renderer(ground, looks), camera_rig()[0], pose, boxes[:1])


def test_an_encoded_image_comes_back():
    image = np.full((90, 160, 3), (40, 120, 200), dtype=np.uint8)
    back = cv2.imdecode(
        np.frombuffer(encode_jpeg(image), np.uint8), cv2.IMREAD_COLOR)
    assert back.shape == image.shape
    assert np.abs(back.astype(int) - image).max() <= 2
