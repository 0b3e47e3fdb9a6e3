"""The database is mmdet3d's own, pastes, and is the same from one file."""

import importlib.util
import os.path as osp
import pickle
import shutil

import numpy as np
import pytest

from mmturbox.datasets import DataError
from mmturbox.datasets.nuscenes import GroundTruthStore, write_infos
from mmturbox.datasets.nuscenes.annotations import CLASSES
from mmturbox.datasets.nuscenes.gt_database import write_gt_database


@pytest.fixture(scope='module')
def out(nusc, synthetic_root, tmp_path_factory):
    """One scene's info files and database, apart from the shared set."""
    folder = tmp_path_factory.mktemp('gt')
    write_infos(nusc, folder)
    write_gt_database(synthetic_root, folder)
    return folder


@pytest.fixture(scope='module')
def entries(out):
    with open(out / 'nuscenes_dbinfos_train.pkl', 'rb') as file:
        return pickle.load(file)


def load(out, entry):
    return np.fromfile(out / entry['path'], np.float32).reshape(-1, 5)


@pytest.fixture(scope='module')
def upstream(synthetic_root, tmp_path_factory):
    """What mmdet3d's script makes of the same set: folder and entries."""
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    import mmdet3d
    from mmdet3d.utils import register_all_modules
    from mmengine.registry import DefaultScope
    register_all_modules(init_default_scope=False)
    path = osp.join(
        osp.dirname(mmdet3d.__file__), '.mim', 'tools', 'dataset_converters',
        'create_gt_database.py')
    spec = importlib.util.spec_from_file_location('upstream_database', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp('upstream')
    with DefaultScope.overwrite_default_scope('mmdet3d'):
        module.create_groundtruth_database(
            'NuScenesDataset',
            str(synthetic_root),
            'nuscenes',
            'nuscenes_infos_train.pkl',
            database_save_path=str(folder / 'nuscenes_gt_database'),
            db_info_save_path=str(folder / 'dbinfos.pkl'))
    with open(folder / 'dbinfos.pkl', 'rb') as file:
        return folder, pickle.load(file)


def test_entries_and_points_are_those_of_mmdet3ds_script(
        out, entries, upstream):
    folder, theirs = upstream
    assert list(entries) == list(theirs)
    total = different = 0
    for name, rows in theirs.items():
        assert len(entries[name]) == len(rows)
        for ours, row in zip(entries[name], rows, strict=True):
            assert set(ours) == set(row)
            np.testing.assert_array_equal(ours['box3d_lidar'],
                                          row['box3d_lidar'])
            assert ours['box3d_lidar'].dtype == row['box3d_lidar'].dtype
            for key in set(row) - {'box3d_lidar', 'num_points_in_gt'}:
                assert ours[key] == row[key], key
            assert type(ours['path']) is str
            mine, other = load(out, ours), load(folder, row)
            total += len(other)
            if len(mine) == len(other):
                np.testing.assert_array_equal(mine, other)
            else:
                # Points right on a face.
                different += abs(len(mine) - len(other))
    assert total > 10_000
    assert different <= .001 * total


def test_points_lie_in_their_box(out, entries):
    count = 0
    for rows in entries.values():
        for entry in rows:
            points = load(out, entry)
            assert len(points) == entry['num_points_in_gt']
            length, width, height, yaw = entry['box3d_lidar'][3:7]
            cos, sin = np.cos(yaw), np.sin(yaw)
            x, y, z = points[:, :3].T
            slack = 1e-3
            assert (np.abs(x * cos + y * sin) <= length / 2 + slack).all()
            assert (np.abs(y * cos - x * sin) <= width / 2 + slack).all()
            assert ((-slack <= z) & (z <= height + slack)).all()
            count += len(points)
    assert count > 10_000


def test_store_gives_the_same_points_from_one_file(out, entries):
    store = GroundTruthStore(out / 'nuscenes_gt_store')
    rows = [entry for rows in entries.values() for entry in rows]
    assert len(store) == len(rows)
    assert sorted(e['group_id'] for e in rows) == list(range(len(rows)))
    for entry in rows:
        points = store[entry['group_id']]
        assert points.dtype == np.float32 and not points.flags.writeable
        np.testing.assert_array_equal(points, load(out, entry))
    assert isinstance(store._points, np.memmap)
    with pytest.raises(IndexError, match=f'no object {len(rows)}'):
        store[len(rows)]


def test_store_travels_to_workers_as_a_path(out):
    store = GroundTruthStore(out / 'nuscenes_gt_store')
    data = pickle.dumps(store)
    assert len(data) < 1000
    np.testing.assert_array_equal(pickle.loads(data)[0], store[0])


def test_missing_store_says_how_to_make_it(tmp_path):
    with pytest.raises(DataError, match='create_data.py nuscenes'):
        GroundTruthStore(tmp_path)


def test_mmdet3ds_object_sample_pastes_from_it(out, synthetic_root):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    import mmdet3d.datasets  # noqa: F401
    from mmdet3d.datasets import NuScenesDataset
    from mmengine.registry import DefaultScope
    classes = list(CLASSES)
    loader = dict(
        type='LoadPointsFromFile', coord_type='LIDAR', load_dim=5, use_dim=5)
    sampler = dict(
        data_root=str(out),
        info_path=str(out / 'nuscenes_dbinfos_train.pkl'),
        rate=1.0,
        prepare=dict(
            filter_by_difficulty=[-1],
            filter_by_min_points=dict.fromkeys(classes, 5)),
        classes=classes,
        sample_groups=dict(car=40, pedestrian=40),
        points_loader=loader)
    with DefaultScope.overwrite_default_scope('mmdet3d'):
        dataset = NuScenesDataset(
            data_root=str(synthetic_root),
            ann_file='nuscenes_infos_train.pkl',
            data_prefix=dict(
                pts='samples/LIDAR_TOP', img='', sweeps='sweeps/LIDAR_TOP'),
            metainfo=dict(classes=classes),
            use_valid_flag=True,
            pipeline=[
                loader,
                dict(
                    type='LoadAnnotations3D',
                    with_bbox_3d=True,
                    with_label_3d=True),
                dict(type='ObjectSample', db_sampler=sampler),
            ])
        np.random.seed(0)
        info = dataset.get_data_info(0)
        before = len(info['ann_info']['gt_labels_3d'])
        sample = dataset.pipeline(info)
    assert len(sample['gt_labels_3d']) > before
    assert sample['points'].shape[1] == 5


def test_database_does_not_depend_on_workers_and_runs_once(
        out, synthetic_root, tmp_path, monkeypatch):
    from mmturbox.datasets.nuscenes import gt_database
    monkeypatch.setattr(gt_database, '_SHARD_SAMPLES', 1)
    for path in out.glob('nuscenes_infos*'):
        shutil.copy(path, tmp_path)
    made = write_gt_database(synthetic_root, tmp_path, workers=2)
    assert all(path.exists() for path in made)
    files = sorted(p.relative_to(out) for p in out.rglob('*'))
    assert files == sorted(p.relative_to(tmp_path)
                           for p in tmp_path.rglob('*'))
    for name in ('points.npy', 'offsets.npy'):
        ours = tmp_path / 'nuscenes_gt_store' / name
        assert ours.read_bytes() == (out / 'nuscenes_gt_store' /
                                     name).read_bytes()

    def refuse(*args):
        raise AssertionError('made again')

    monkeypatch.setattr(gt_database, '_make_shard', refuse)
    assert write_gt_database(synthetic_root, tmp_path) == made


def test_killed_run_goes_on(out, synthetic_root, tmp_path, monkeypatch):
    from mmturbox.datasets.nuscenes import gt_database
    monkeypatch.setattr(gt_database, '_SHARD_SAMPLES', 1)
    for path in out.glob('nuscenes_infos*'):
        shutil.copy(path, tmp_path)
    make, made = gt_database._make_shard, []

    def killed(*args):
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(args)
        make(*args)

    monkeypatch.setattr(gt_database, '_make_shard', killed)
    with pytest.raises(KeyboardInterrupt):
        write_gt_database(synthetic_root, tmp_path)
    assert not (tmp_path / 'nuscenes_gt_database').exists()
    monkeypatch.setattr(gt_database, '_make_shard',
                        lambda *args: made.append(args) or make(*args))
    write_gt_database(synthetic_root, tmp_path)
    with open(out / 'nuscenes_infos_train.pkl', 'rb') as file:
        assert len(made) == len(pickle.load(file)['data_list'])
    assert not list(tmp_path.glob('.*partial'))


def test_store_holds_nothing_of_a_write_that_was_killed(
        out, synthetic_root, tmp_path, monkeypatch):
    from mmturbox.datasets.nuscenes import gt_database
    for path in out.glob('nuscenes_infos*'):
        shutil.copy(path, tmp_path)

    def killed(folder, *args):
        folder.mkdir()
        (folder / 'points.npy.partial-17').touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gt_database, 'write_store', killed)
        write_gt_database(synthetic_root, tmp_path)
    write_gt_database(synthetic_root, tmp_path)
    names = [p.name for p in (tmp_path / 'nuscenes_gt_store').iterdir()]
    assert sorted(names) == ['offsets.npy', 'points.npy']


@pytest.mark.parametrize('damage, text', [
    (lambda p: p.unlink(), 'does not exist'),
    (lambda p: p.write_bytes(p.read_bytes()[:-3]), 'cut short'),
])
def test_damaged_sensor_file_is_named(nusc, synthetic_root, tmp_path, damage,
                                      text):
    root = tmp_path / 'root'
    shutil.copytree(
        synthetic_root, root, ignore=shutil.ignore_patterns('CAM*'))
    write_infos(nusc, root, overwrite=True)
    with open(root / 'nuscenes_infos_train.pkl', 'rb') as file:
        info = pickle.load(file)['data_list'][1]
    name = info['lidar_points']['lidar_path']
    damage(root / 'samples' / 'LIDAR_TOP' / name)
    with pytest.raises(DataError) as error:
        write_gt_database(root, root)
    assert name in str(error.value) and text in str(error.value)
    assert not (root / 'nuscenes_dbinfos_train.pkl').exists()
