"""The synthetic set is official nuScenes data and means what it says."""

import hashlib
import re

import numpy as np
import pytest
from nuscenes.eval.detection.constants import DETECTION_NAMES
from nuscenes.eval.detection.utils import (
    category_to_detection_name,
    detection_name_to_rel_attributes,
)
from nuscenes.utils.data_classes import LidarPointCloud
from nuscenes.utils.geometry_utils import points_in_box

from mmturbox.datasets.synthetic import create_synthetic_nuscenes
from mmturbox.datasets.synthetic.dataset import scene_names
from mmturbox.datasets.synthetic.geometry import (
    inverse_rigid,
    rigid,
    transform,
    yaw_quaternion,
)
from mmturbox.datasets.synthetic.lidar import Lidar, scan
from mmturbox.datasets.synthetic.scene import Contents

# That of the fixture, and the least.
CONTENTS = Contents(image_size=(400, 225))
PLAIN = Contents(image_size=None)


def digest(root) -> dict:
    return {
        str(path.relative_to(root)): hashlib.md5(
            path.read_bytes()).hexdigest()
        for path in sorted(root.rglob('*')) if path.is_file()
    }


def lidar_of(nusc, sample):
    """Key frame points (5, P), boxes in the lidar frame, lidar2global."""
    token = sample['data']['LIDAR_TOP']
    path, boxes, _ = nusc.get_sample_data(token)
    return LidarPointCloud.from_file(path).points, boxes, pose_of(nusc, token)


def pose_of(nusc, token):
    data = nusc.get('sample_data', token)
    sensor = nusc.get('calibrated_sensor', data['calibrated_sensor_token'])
    pose = nusc.get('ego_pose', data['ego_pose_token'])
    return rigid(pose['rotation'], pose['translation']) @ rigid(
        sensor['rotation'], sensor['translation'])


def test_names_and_places_are_official(nusc):
    from nuscenes.can_bus.can_bus_api import NuScenesCanBus
    from nuscenes.map_expansion.map_api import locations
    from nuscenes.utils.splits import create_splits_scenes
    splits = create_splits_scenes()
    names = {scene['name'] for scene in nusc.scene}
    assert names & set(splits['mini_train'])
    assert names & set(splits['mini_val'])
    assert all(log['location'] in locations for log in nusc.log)
    assert {c['name'] for c in nusc.category if
            category_to_detection_name(c['name'])} == {
                c['name'] for c in nusc.category}
    # The blacklist is set before the folder is looked for.
    can_bus = NuScenesCanBus.__new__(NuScenesCanBus)
    with pytest.raises(Exception, match='CAN bus directory'):
        can_bus.__init__('/nowhere')
    every = set(splits['mini_train'] + splits['mini_val'])
    assert set(scene_names(10)) == every
    source = open(NuScenesCanBus.__init__.__code__.co_filename).read()
    black = re.findall(r'self\.\w+_blacklist = \[([\d,\s]+)\]', source)
    assert len(black) == 2
    numbers = {int(n) for group in black for n in group.split(',')}
    assert not numbers & {int(name[-4:]) for name in every}


def test_frames_come_at_20_hz_and_samples_at_2_hz(nusc):
    for scene in nusc.scene:
        sample = nusc.get('sample', scene['first_sample_token'])
        data = nusc.get('sample_data', sample['data']['LIDAR_TOP'])
        assert data['prev'] == '' and data['is_key_frame']
        frames = [data]
        while data['next']:
            data = nusc.get('sample_data', data['next'])
            assert data['prev'] == frames[-1]['token']
            assert data['timestamp'] - frames[-1]['timestamp'] == 50_000
            frames.append(data)
        keys = [i for i, d in enumerate(frames) if d['is_key_frame']]
        assert keys == list(range(0, len(frames), 10))
        assert len(keys) == scene['nbr_samples'] == 3
        for i, frame in enumerate(frames):
            owner = frames[keys[-(-i // 10)]]['sample_token']
            assert frame['sample_token'] == owner
            assert frame['timestamp'] == nusc.get(
                'ego_pose', frame['ego_pose_token'])['timestamp']


def test_all_classes_and_about_50_valid_boxes_in_range(nusc):
    counts, every = [], set()
    for sample in nusc.sample:
        _, boxes, _ = lidar_of(nusc, sample)
        seen, in_range = set(), 0
        for box in boxes:
            ann = nusc.get('sample_annotation', box.token)
            seen.add(category_to_detection_name(ann['category_name']))
            in_range += ann['num_lidar_pts'] > 0 and bool(
                (np.abs(box.center[:2]) < 51.2).all())
        # A parked truck may hide the only cones.
        assert len(seen) >= len(DETECTION_NAMES) - 1
        every |= seen
        counts.append(in_range)
    assert every == set(DETECTION_NAMES)
    assert 30 <= min(counts) and max(counts) <= 75
    assert 40 <= np.mean(counts) <= 60


def test_attributes_fit_class_and_motion(nusc):
    for ann in nusc.sample_annotation:
        name = category_to_detection_name(ann['category_name'])
        attributes = [
            nusc.get('attribute', t)['name'] for t in ann['attribute_tokens']
        ]
        allowed = detection_name_to_rel_attributes(name)
        assert len(attributes) == (1 if allowed else 0)
        assert set(attributes) <= set(allowed)
        velocity = nusc.box_velocity(ann['token'])
        if attributes and not np.isnan(velocity).any():
            # The devkit's velocity is a mean over a second.
            speed = np.linalg.norm(velocity)
            if attributes[0].endswith('.moving'):
                assert speed > .05
            elif attributes[0] in ('vehicle.parked', 'cycle.without_rider'):
                assert speed == 0
            elif attributes[0] != 'cycle.with_rider':
                assert speed < 1.2


def test_num_lidar_pts_is_the_devkits_count(nusc):
    for sample in nusc.sample[::2]:
        points, boxes, _ = lidar_of(nusc, sample)
        for box in boxes:
            ann = nusc.get('sample_annotation', box.token)
            count = points_in_box(box, points[:3]).sum()
            assert abs(count - ann['num_lidar_pts']) <= 1


def test_sweeps_put_parked_cars_where_the_key_frame_has_them(nusc):
    sample = nusc.get('sample', nusc.scene[0]['last_sample_token'])
    _, boxes, lidar2global = lidar_of(nusc, sample)
    data = nusc.get('sample_data', sample['data']['LIDAR_TOP'])
    for _ in range(9):
        data = nusc.get('sample_data', data['prev'])
    sweep = LidarPointCloud.from_file(nusc.get_sample_data_path(
        data['token'])).points[:3].T
    sweep2key = inverse_rigid(lidar2global) @ pose_of(nusc, data['token'])
    moved = transform(sweep2key, sweep).T
    checked = 0
    for box in boxes:
        ann = nusc.get('sample_annotation', box.token)
        speed = np.linalg.norm(nusc.box_velocity(box.token))
        if ann['num_lidar_pts'] < 60 or speed != 0:
            continue
        now = points_in_box(box, moved).sum()
        # Some is hidden half a second before.
        assert now > .3 * ann['num_lidar_pts']
        assert points_in_box(box, sweep.T).sum() < now
        checked += 1
    assert checked >= 3


def test_ray_casting_equals_brute_force():
    lidar = Lidar(beams=16, columns=180, noise=0., dropout=0., skin=0.)
    rng = np.random.default_rng(0)
    boxes = np.column_stack([
        rng.uniform(-30, 30, (40, 2)),
        rng.uniform(.5, 3, 40),
        rng.uniform(.3, 9, (40, 3)),
        rng.uniform(-4, 4, 40)
    ])
    # One box around the sensor's column, one behind the azimuth's seam.
    boxes[0] = (.94, 0., 6., 4., 4., 2., .3)
    boxes[1] = (0., 20., 1., 3., 3., 2., .1)
    points = scan(lidar, boxes, np.full(40, 100.), np.eye(4), rng)

    rays = lidar.directions().reshape(-1, 3)
    lidar2global = lidar.lidar2ego
    best = np.full(len(rays), np.inf)
    with np.errstate(divide='ignore'):
        t = -lidar2global[2, 3] / (rays @ lidar2global[2, :3])
    best = np.where((t > 0) & (t < best), t, best)
    for box in boxes:
        box2lidar = inverse_rigid(lidar2global) @ rigid(
            yaw_quaternion(box[6]), box[:3])
        o = -box2lidar[:3, :3].T @ box2lidar[:3, 3]
        d = rays @ box2lidar[:3, :3]
        for axis in range(3):
            for side in (-.5, .5):
                t = (side * box[3 + axis] - o[axis]) / d[:, axis]
                point = o + d * t[:, None]
                rest = [a for a in range(3) if a != axis]
                on = (np.abs(point[:, rest]) <= box[3:6][rest] / 2).all(1)
                outside = (np.abs(o) > box[3:6] / 2).any()
                hit = on & (t > 0) & (t < best) & outside
                best = np.where(hit, t, best)
    best[best > lidar.max_range] = np.inf
    expected = (rays * best[:, None])[np.isfinite(best)]
    assert len(points) == len(expected)
    np.testing.assert_allclose(points[:, :3], expected, atol=1e-4)


def test_same_seed_gives_same_bytes_for_any_number_of_workers(tmp_path):
    kwargs = dict(
        num_scenes=2,
        num_frames=2,
        contents=Contents(image_size=(160, 90), occupancy=True))
    create_synthetic_nuscenes(tmp_path / 'a', **kwargs)
    create_synthetic_nuscenes(tmp_path / 'b', workers=2, **kwargs)
    create_synthetic_nuscenes(tmp_path / 'c', seed=1, **kwargs)
    a, b, c = (digest(tmp_path / name) for name in 'abc')
    assert a == b
    kinds = {'.bin': 2 * 11, '.jpg': 2 * 2 * 6, '.npy': 2 * 2, '.png': 1}
    for suffix, count in kinds.items():
        files = [name for name in a if name.endswith(suffix)]
        assert len(files) == count
        assert all(a[name] != c[name] for name in files)


def test_camera_sweeps_come_at_12_hz_and_no_cameras_leave_lidar(tmp_path):
    from nuscenes.nuscenes import NuScenes
    contents = Contents(image_size=(64, 36), camera_sweeps=True)
    create_synthetic_nuscenes(tmp_path / 'a', 2, 2, contents=contents)
    nusc = NuScenes('v1.0-mini', str(tmp_path / 'a'), verbose=False)
    for scene in nusc.scene:
        sample = nusc.get('sample', scene['first_sample_token'])
        data = nusc.get('sample_data', sample['data']['CAM_BACK'])
        frames = [data]
        while data['next']:
            data = nusc.get('sample_data', data['next'])
            frames.append(data)
        assert [f['is_key_frame'] for f in frames] == [True] + 5 * [
            False] + [True]
        assert all((tmp_path / 'a' / f['filename']).is_file()
                   for f in frames)
        steps = np.diff([f['timestamp'] for f in frames])
        assert (np.abs(steps - 1e6 / 12) < 1).all()
    create_synthetic_nuscenes(
        tmp_path / 'b', 2, 2, contents=Contents(image_size=None))
    plain = NuScenes('v1.0-mini', str(tmp_path / 'b'), verbose=False)
    assert {s['channel'] for s in plain.sensor} == {'LIDAR_TOP'}
    # Labels do not depend on what else is made.
    assert plain.sample_annotation == nusc.sample_annotation


def test_second_run_does_nothing(synthetic_root):
    before = {p: p.stat().st_mtime_ns for p in synthetic_root.rglob('*')}
    assert not create_synthetic_nuscenes(
        synthetic_root, 2, 3, contents=CONTENTS)
    assert before == {
        p: p.stat().st_mtime_ns
        for p in synthetic_root.rglob('*')
    }


def test_an_interrupted_run_leaves_nothing(tmp_path):

    def interrupt(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_synthetic_nuscenes(
            tmp_path / 'set', 2, 2, contents=PLAIN, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_other_parameters_need_overwrite(synthetic_root):
    before = digest(synthetic_root)
    with pytest.raises(ValueError, match='other parameters'):
        create_synthetic_nuscenes(synthetic_root, 2, 3, seed=5)
    assert digest(synthetic_root) == before


def test_overwrite_replaces_only_synthetic_sets(tmp_path):
    out = tmp_path / 'set'
    create_synthetic_nuscenes(out, 2, 2, contents=PLAIN)
    before = digest(out)
    assert create_synthetic_nuscenes(
        out, 2, 2, seed=5, overwrite=True, contents=PLAIN)
    assert digest(out) != before
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'precious.txt').write_text('x')
    with pytest.raises(ValueError, match='no synthetic set'):
        create_synthetic_nuscenes(tmp_path / 'mine', 2, 2, overwrite=True)
    assert (tmp_path / 'mine' / 'precious.txt').exists()


@pytest.mark.parametrize('kwargs, match', [
    (dict(image_size=(16, 9)), '16 to 8192'),
    (dict(image_size=(70000, 900)), '16 to 8192'),
    (dict(image_size=None, camera_sweeps=True), 'need cameras'),
])
def test_impossible_contents_are_named(kwargs, match):
    with pytest.raises(ValueError, match=match):
        Contents(**kwargs)


def test_a_full_disk_names_the_set(tmp_path, monkeypatch):
    from mmturbox.datasets.synthetic import scene
    full = tmp_path / 'full'

    class Points:

        def tobytes(self):
            # As any write to a full disk.
            with open('/dev/full', 'wb', buffering=0) as file:
                file.write(b'x')

    monkeypatch.setattr(scene, 'scan', lambda *args: Points())
    with pytest.raises(ValueError, match='no space left to write .*full'):
        create_synthetic_nuscenes(full, 2, 2, contents=PLAIN)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('kwargs, match', [
    (dict(num_scenes=11), '2 to 10'),
    (dict(num_scenes=1), '2 to 10'),
    (dict(num_frames=1), '2 .* to 40 frames'),
    (dict(num_frames=41), '2 .* to 40 frames'),
    (dict(workers=0), 'a worker'),
    (dict(seed=-1), 'seed'),
])
def test_bad_parameters_are_named(tmp_path, kwargs, match):
    with pytest.raises(ValueError, match=match):
        create_synthetic_nuscenes(tmp_path / 'set', **kwargs)
    assert not (tmp_path / 'set').exists()
