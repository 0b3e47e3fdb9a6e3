"""Occupancy labels of the synthetic city."""

import numpy as np
import pytest

from mmturbox.datasets.synthetic.geometry import (
    inverse_rigid,
    rigid,
    transform,
    yaw_quaternion,
)
from mmturbox.datasets.synthetic.ground_classes import (
    DRIVEABLE,
    SIDEWALK,
    TERRAIN,
)
from mmturbox.datasets.synthetic.kinds import KIND_INDEX, KINDS
from mmturbox.datasets.synthetic.lidar import Lidar, scan
from mmturbox.datasets.synthetic.occupancy import (
    CLASSES,
    GRID_SIZE,
    POINT_CLOUD_RANGE,
    VOXEL_SIZE,
    kind_classes,
    occupancy,
    structure_classes,
    write_occupancy,
)

LOW = np.array(POINT_CLOUD_RANGE[:3])
NO_BOXES = np.zeros((0, 7)), np.zeros(0, dtype=int)
# Metres ahead along the street, metres left of its middle, kind.
ACTORS = (
    (14., -1.75, 'car'), (24., 1.75, 'car'), (-12., 1.75, 'truck'),
    (10., -6.1, 'car'), (18., -6.1, 'car'), (30., -5.8, 'bus'),
    (8., 5.9, 'construction_vehicle'), (16., 5.9, 'traffic_cone'),
    (19., 5.9, 'barrier'), (6., -9.1, 'pedestrian'), (9., 9.4, 'pedestrian'),
    (12., -4.2, 'bicycle'), (-6., -4.2, 'motorcycle'),
    (-20., -1.75, 'trailer'),
)


@pytest.fixture(scope='module')
def street(city):
    return next(s for s in city.streets if s.lanes_each_way == 1)


@pytest.fixture(scope='module')
def ego2global(street):
    """In the right lane, 35 m into a street."""
    xy, heading = street.centre.offset(-1.75).at(35.)
    return rigid(yaw_quaternion(float(heading)), [*xy, 0.])


@pytest.fixture(scope='module')
def lidar2global(ego2global):
    return ego2global @ Lidar().lidar2ego


@pytest.fixture(scope='module')
def scene(street):
    """Boxes (N, 7) and classes (N,): traffic, houses, trees."""
    boxes, classes = [], []
    for ahead, left, name in ACTORS:
        kind = KIND_INDEX[name]
        boxes.append(stand(street, 35. + ahead, left, KINDS[kind].size))
        classes.append(int(kind_classes(np.array([kind]))[0]))
    for ahead in (-30., -15., 0., 16., 32.):
        boxes.append(stand(street, 35. + ahead, 18., (12., 9., 8.)))
        boxes.append(stand(street, 35. + ahead, -13.5, (1.5, 1.5, 4.)))
        classes += structure_classes(np.array([0, 1])).tolist()
    return np.array(boxes), np.array(classes)


@pytest.fixture(scope='module')
def label(scene, ground, lidar2global):
    return occupancy(*scene, ground, lidar2global)


def stand(street, s, left, size):
    xy, heading = street.centre.offset(left).at(s)
    return [*xy, size[2] / 2, *size, float(heading)]


def dense(label):
    """As GaussianFormer loads it: 17 is empty."""
    grid = np.full(GRID_SIZE, 17)
    grid[label[:, 0], label[:, 1], label[:, 2]] = label[:, 3]
    return grid


def middles(label):
    """(V, 3) in the LiDAR frame."""
    return LOW + VOXEL_SIZE * (label[:, :3] + .5)


def in_box(points, box, slack=0.):
    """Which global points lie in a box that is ``slack`` metres larger."""
    x, y, z, *size, yaw = box
    seen = transform(
        inverse_rigid(rigid(yaw_quaternion(yaw), [x, y, z])), points)
    return (np.abs(seen) <= np.array(size) / 2 + slack).all(-1)


def look_up(grid, points):
    """Classes at (P, 3) points of the LiDAR frame; which are in range."""
    index = np.floor((points - LOW) / VOXEL_SIZE).astype(int)
    within = ((index >= 0) & (index < GRID_SIZE)).all(1)
    return grid[tuple(index[within].T)], within


class TestFormat:

    def test_rows_are_voxels_and_classes(self, label):
        assert label.dtype == np.int64 and label.shape[1] == 4
        assert (label[:, :3] >= 0).all() and (label[:, :3] < GRID_SIZE).all()
        assert set(np.unique(label[:, 3])) <= set(range(1, 17))
        assert len(np.unique(label[:, :3], axis=0)) == len(label)

    def test_the_grid_is_surroundoccs(self):
        span = np.array(POINT_CLOUD_RANGE[3:]) - LOW
        assert GRID_SIZE == (200, 200, 16)
        np.testing.assert_array_equal(span / VOXEL_SIZE, GRID_SIZE)

    def test_classes_are_numbered_as_in_the_benchmark(self):
        assert CLASSES[:11] == ('noise', 'barrier', 'bicycle', 'bus', 'car',
                                'construction_vehicle', 'motorcycle',
                                'pedestrian', 'traffic_cone', 'trailer',
                                'truck')
        assert CLASSES[DRIVEABLE] == 'driveable_surface'
        assert CLASSES[SIDEWALK] == 'sidewalk'
        assert CLASSES[TERRAIN] == 'terrain'
        assert structure_classes(np.array([0, 1])).tolist() == [15, 16]
        kinds = kind_classes(np.arange(len(KINDS)))
        assert [CLASSES[c] for c in kinds] == [k.name for k in KINDS]

    def test_same_scene_same_label(self, scene, ground, lidar2global, label):
        again = occupancy(*scene, ground, lidar2global)
        np.testing.assert_array_equal(again, label)

    def test_the_file_is_named_after_the_points(self, tmp_path, label):
        write_occupancy(tmp_path, 'samples/LIDAR_TOP/a__LIDAR_TOP__1.pcd.bin',
                        label)
        path = tmp_path / 'nuscenes_occ/samples/a__LIDAR_TOP__1.pcd.bin.npy'
        np.testing.assert_array_equal(np.load(path), label)
        assert [p.name for p in path.parent.iterdir()] == [path.name]


class TestBoxes:

    def test_what_is_inside_a_box_has_its_class(self, scene, lidar2global,
                                                label):
        grid = dense(label)
        rng = np.random.default_rng(1)
        for box, value in zip(*scene, strict=True):
            inside = rng.uniform(-.5, .5, (2000, 3)) * box[3:6]
            inside = transform(
                rigid(yaw_quaternion(box[6]), box[:3]), inside)
            found, _ = look_up(
                grid, transform(inverse_rigid(lidar2global), inside))
            # All but what shares a voxel with a smaller neighbour.
            assert (found == value).mean() > .97, CLASSES[value]

    def test_a_box_fills_nothing_else(self, scene, lidar2global, label):
        points = transform(lidar2global, middles(label))
        for value in np.unique(scene[1]):
            near = np.zeros(int((label[:, 3] == value).sum()), dtype=bool)
            for box in scene[0][scene[1] == value]:
                # Half a voxel's diagonal.
                near |= in_box(points[label[:, 3] == value], box, .4331)
            assert near.all(), CLASSES[value]

    def test_thin_things_get_voxels(self, ground, lidar2global, ego2global):
        rng = np.random.default_rng(2)
        for _ in range(30):
            x, y = rng.uniform(-40., 40., 2)
            place = transform(ego2global, np.array([[x, y, .2]]))[0]
            box = np.array([[*place, .05, .05, .4, rng.uniform(0., 6.)]])
            label = occupancy(box, np.array([8]), ground, lidar2global)
            assert 1 <= (label[:, 3] == 8).sum() <= 8

    @pytest.mark.parametrize('order', [[0, 1], [1, 0]])
    def test_the_smaller_of_two_boxes_shows(self, ground, lidar2global,
                                            ego2global, order):
        place = transform(ego2global, np.array([[10., 3., .8]]))[0]
        boxes = np.array([[*place, 4.6, 1.9, 1.6, .3],
                          [*place, .4, .4, 1., .3]])[order]
        label = occupancy(boxes, np.array([4, 8])[order], ground,
                          lidar2global)
        assert (label[:, 3] == 8).any() and (label[:, 3] == 4).any()

    def test_boxes_beyond_the_range_are_cut_off(self, ground, lidar2global,
                                                ego2global):
        places = transform(
            ego2global, np.array([[50.9, 0., 1.], [0., 80., 1.],
                                  [0., 0., 9.]]))
        boxes = np.array([[*p, 4., 4., 2., 0.] for p in places])
        label = occupancy(boxes, np.array([4, 10, 3]), ground, lidar2global)
        assert (label[:, 3] == 4).any()
        assert not np.isin(label[:, 3], [3, 10]).any()

    def test_a_box_at_the_voxels_own_heading_has_its_exact_volume(
            self, ground):
        lidar2global = rigid(yaw_quaternion(0.), [2000., 100., 1.8])
        box = np.array([[2000.25, 100.25, 2.05, 2.4, 1.4, .9, 0.]])
        label = occupancy(box, np.array([4]), ground, lidar2global)
        # Centred on a voxel: 5 x 3 x 3 voxels.
        assert (label[:, 3] == 4).sum() == 45


class TestGround:

    def test_it_lies_where_the_road_is(self, ground, lidar2global):
        label = occupancy(*NO_BOXES, ground, lidar2global)
        height = transform(lidar2global, middles(label))[:, 2]
        # Half a voxel, and what the tilt adds.
        assert (np.abs(height) <= VOXEL_SIZE / 2 + .01).all()
        grid = dense(label) != 17
        assert set(np.unique(grid.sum(-1))) <= {1, 2}
        # Half a degree of pitch is a voxel over the range.
        assert len(np.unique(label[:, 2])) > 1

    def test_its_class_is_the_citys(self, street, ground, lidar2global):
        grid = dense(occupancy(*NO_BOXES, ground, lidar2global))
        for out, value in ((-3., DRIVEABLE), (2., SIDEWALK), (6., TERRAIN)):
            for side in (1., -1.):
                line = street.centre.offset(side * (street.half_width + out))
                xy = line.at(np.linspace(20., 50., 40))[0]
                points = np.column_stack([xy, np.zeros(40)])
                found, within = look_up(
                    grid, transform(inverse_rigid(lidar2global), points))
                assert within.all() and (found == value).all()

    def test_nothing_floats_above_it(self, ground, lidar2global):
        label = occupancy(*NO_BOXES, ground, lidar2global)
        assert set(np.unique(label[:, 3])) == {DRIVEABLE, SIDEWALK, TERRAIN}

    def test_a_far_country_is_all_terrain(self, ground):
        lidar2global = rigid(yaw_quaternion(1.), [2500., 1900., 1.84])
        label = occupancy(*NO_BOXES, ground, lidar2global)
        assert len(label) == 200 * 200
        assert (label[:, 3] == TERRAIN).all()


class TestPoints:

    def test_returns_fall_into_voxels_of_their_class(
            self, scene, ground, ego2global, lidar2global, label):
        boxes, classes = scene
        points = scan(Lidar(), boxes, np.full(len(boxes), 30.), ego2global,
                      np.random.default_rng(3))[:, :3].astype(float)
        found, within = look_up(dense(label), points)
        points = transform(lidar2global, points[within])
        expected = ground.at(points[:, :2]).astype(int)
        on_box = np.zeros(len(points), dtype=bool)
        for box, value in zip(boxes, classes, strict=True):
            inside = in_box(points, box)
            expected[inside] = value
            on_box |= inside
        assert on_box.sum() > 3000 and (~on_box).sum() > 3000
        assert (found != 17).mean() > .999
        assert (found == expected)[on_box].mean() > .97
        # Ground beside a thing may share its voxel, which then has the
        # thing's class.
        shared = ~on_box & np.isin(found, classes)
        assert shared.mean() < .05
        assert (found == expected)[~on_box & ~shared].mean() > .97
