"""Conversion end to end: once, resumed, alike on any number of processes, and
one clear error for everything that may be wrong."""

import fcntl
import importlib.util
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from mmturbox.datasets import DataError
from mmturbox.datasets.nuscenes import convert, convert_nuscenes, infos
from mmturbox.datasets.nuscenes.tables import TABLES

VERSION = 'v1.0-mini'
TOOL = Path(__file__).parents[2] / 'tools' / 'create_data.py'


@pytest.fixture
def root(synthetic_root, tmp_path):
    """A copy of the set without what the converter makes."""
    root = tmp_path / 'nuscenes'
    shutil.copytree(
        synthetic_root,
        root,
        copy_function=os.link,
        ignore=shutil.ignore_patterns('nuscenes_*', 'synthetic.json'))
    for name in TABLES:
        path = root / VERSION / f'{name}.json'
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    return root


def convert_infos(root, **kwargs):
    kwargs.setdefault('gt_database', False)
    return convert_nuscenes(root, VERSION, **kwargs)


def tree(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob('*') if path.is_file()
    }


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(infos, 'SHARD_SAMPLES', 1)


def test_files_do_not_depend_on_workers(root, tmp_path, small_shards):
    one, three = tmp_path / 'one', tmp_path / 'three'
    paths = convert_infos(root, out_dir=one)
    convert_infos(root, out_dir=three, workers=3)
    assert [p.name for p in paths] == [
        'nuscenes_infos_train.pkl', 'nuscenes_infos_val.pkl'
    ]
    assert tree(one) == tree(three)
    with open(paths[0], 'rb') as file:
        data = pickle.load(file)
    assert [r['sample_idx'] for r in data['data_list']] == [0, 1, 2]
    assert data['metainfo']['info_version'] == '1.1'


def test_running_again_opens_nothing(root, monkeypatch):
    paths = convert_infos(root, gt_database=True)
    before = {p: p.stat().st_mtime_ns for p in root.glob('nuscenes_*')}
    monkeypatch.setattr(convert, 'open_tables', None)
    # Of a run that was killed just before its end.
    for name in ('infos', 'gt_database'):
        (root / f'.nuscenes_{name}.partial').mkdir()
    assert convert_infos(root, gt_database=True) == paths
    assert before == {p: p.stat().st_mtime_ns
                      for p in root.glob('nuscenes_*')}
    assert not list(root.glob('.*'))


@pytest.mark.parametrize('stage', ['infos', 'gt_database'])
def test_second_run_at_the_same_time_is_refused(root, stage):
    with open(root / f'.nuscenes_{stage}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match=f'another run.*nuscenes_{stage}'):
            convert_infos(root, gt_database=True)
    convert_infos(root, gt_database=True)


def count_parts(monkeypatch, until=None):
    """Counts the shards made; the run is killed after ``until``."""
    made, write_part = [], infos.write_part

    def counting(path, records):
        if until is not None and len(made) == until:
            raise KeyboardInterrupt
        write_part(path, records)
        made.append(path)

    monkeypatch.setattr(infos, 'write_part', counting)
    return made


def test_killed_run_goes_on_where_it_stopped(root, tmp_path, small_shards,
                                             monkeypatch):
    whole = tmp_path / 'whole'
    convert_infos(root, out_dir=whole)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        count_parts(patch, until=4)
        convert_infos(root)
    assert not list(root.glob('nuscenes_*'))
    with monkeypatch.context() as patch:
        made = count_parts(patch)
        convert_infos(root)
    assert len(made) == 2
    ours = tree(root)
    assert all(ours[path] == data for path, data in tree(whole).items())
    assert not list(root.glob('.*'))


@pytest.mark.parametrize('change', ['parameter', 'table'])
def test_shards_of_another_run_are_not_mixed_in(root, small_shards,
                                                monkeypatch, change):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        count_parts(patch, until=4)
        convert_infos(root)
    kwargs = {}
    if change == 'parameter':
        kwargs['max_sweeps'] = 3
    else:
        path = root / VERSION / 'log.json'
        path.write_text(path.read_text() + ' ')
    with monkeypatch.context() as patch:
        made = count_parts(patch)
        convert_infos(root, **kwargs)
    assert len(made) == 6


def test_killed_while_the_files_are_put_in_place(root, tmp_path,
                                                 monkeypatch):
    whole = tmp_path / 'whole'
    convert_infos(root, out_dir=whole)
    join, calls = infos.join_parts, []

    def killed(path, *args):
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        join(path, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(infos, 'join_parts', killed)
        convert_infos(root)
    convert_infos(root)
    ours = tree(root)
    assert all(ours[path] == data for path, data in tree(whole).items())


def test_tables_are_hashed_once(root, monkeypatch):
    calls, fingerprint = [], infos.fingerprint
    monkeypatch.setattr(
        infos, 'fingerprint',
        lambda *args: calls.append(args) or fingerprint(*args))
    convert_infos(root)
    assert len(calls) == 1


def test_files_made_otherwise_are_only_replaced_when_told_to(root):
    convert_infos(root, max_sweeps=3)
    with pytest.raises(DataError, match='max_sweeps.*--overwrite'):
        convert_infos(root)
    paths = convert_infos(root, overwrite=True)
    with open(paths[0], 'rb') as file:
        assert len(pickle.load(file)['data_list'][1]['lidar_sweeps']) == 10


def test_files_of_another_program_are_not_touched(root):
    path = root / 'nuscenes_infos_val.pkl'
    path.write_bytes(b'precious')
    with pytest.raises(DataError, match='nuscenes_infos_val.pkl is already'):
        convert_infos(root)
    assert path.read_bytes() == b'precious'


def one_file_less(folder):
    next(folder.glob('*_steeranglefeedback.json')).unlink()


def too_deep(folder):
    folder.rename(folder.with_name('inner'))
    folder.mkdir()
    folder.with_name('inner').rename(folder / 'can_bus')


@pytest.mark.parametrize('damage, scenes', [(one_file_less, '1 of 2'),
                                            (too_deep, '2 of 2'),
                                            (shutil.rmtree, '2 of 2')])
def test_can_bus_is_announced_once_where_it_lacks(root, damage, scenes):
    said, folder = [], root / 'can_bus'
    convert_infos(root, out_dir=root / 'whole', announce=said.append)
    assert not any('CAN bus' in text for text in said)
    damage(folder)
    convert_infos(root, announce=said.append)
    text, = (text for text in said if 'CAN bus' in text)
    assert f'{scenes} scenes have no' in text and f'{folder} (such' in text
    # Messages that come later make other records.
    folder.mkdir(exist_ok=True)
    (folder / 'scene-0001_pose.json').write_text('[]')
    with pytest.raises(DataError, match='made with other can_bus'):
        convert_infos(root)


def test_progress_ends_with_all_samples(root, small_shards):
    seen = []
    convert_infos(
        root, workers=2, progress=lambda stage: lambda *a: seen.append(a))
    assert seen[0] == (0, 6) and seen[-1] == (6, 6)


# What may be wrong with the input.


def test_folder_without_tables_is_named(tmp_path):
    with pytest.raises(DataError, match='no nuScenes data root'):
        convert_infos(tmp_path)
    with pytest.raises(DataError, match='nowhere is no folder'):
        convert_infos(tmp_path / 'nowhere')


def test_another_version_is_offered(root):
    with pytest.raises(DataError, match='v1.0-trainval.*it has v1.0-mini'):
        convert_nuscenes(root, 'v1.0-trainval')
    with pytest.raises(DataError, match="'v9'.*v1.0-mini"):
        convert_nuscenes(root, 'v9')


def test_missing_tables_are_named(root):
    for name in ('ego_pose', 'scene'):
        (root / VERSION / f'{name}.json').unlink()
    with pytest.raises(DataError, match='ego_pose.json, scene.json'):
        convert_infos(root)


@pytest.mark.parametrize('damage', [
    lambda data: data[:-100],
    lambda data: bytes(len(data)),
    lambda data: b'[{"name": "\xff"}]',
], ids=['cut', 'zeros', 'no text'])
def test_table_that_is_no_json_is_named(root, damage):
    path = root / VERSION / 'ego_pose.json'
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f'{path} is no JSON.*cut short'):
        convert_infos(root)


@pytest.mark.parametrize('name', ['sample_data', 'sample_annotation'])
def test_table_without_rows_is_named(root, name):
    path = root / VERSION / f'{name}.json'
    path.write_text('[]')
    with pytest.raises(DataError, match=f'{path} has no rows'):
        convert_infos(root)


@pytest.mark.parametrize('name, workers', [('ego_pose', 1), ('ego_pose', 2),
                                           ('scene', 1)])
def test_tables_that_lack_each_others_rows_are_refused(root, name, workers,
                                                       small_shards):
    path = root / VERSION / f'{name}.json'
    rows = json.loads(path.read_text())
    path.write_text(json.dumps(rows[1:]))
    with pytest.raises(DataError, match=f'{VERSION} do.*{rows[0]["token"]}'):
        convert_infos(root, workers=workers)


def test_missing_map_is_named(root):
    shutil.rmtree(root / 'maps')
    with pytest.raises(DataError, match='devkit cannot open.*maps'):
        convert_infos(root)


def lidar_file(root, row):
    samples = json.loads((root / VERSION / 'sample_data.json').read_text())
    keys = [
        r for r in samples if r['filename'].startswith('samples/LIDAR_TOP')
    ]
    return root / keys[row]['filename']


def test_missing_sensor_file_stops_or_leaves_its_samples_out(root):
    path = lidar_file(root, 1)
    path.unlink()
    with pytest.raises(DataError) as error:
        convert_infos(root)
    # The frame is also a sweep of the sample after it.
    assert '2 of 6 samples' in str(error.value)
    assert str(path) in str(error.value)
    assert '--allow-missing' in str(error.value)
    assert not list(root.glob('nuscenes_*'))
    said = []
    paths = convert_infos(root, allow_missing=True, announce=said.append)
    assert any('2 of 6' in text and 'left out' in text for text in said)
    with open(paths[0], 'rb') as file:
        train = pickle.load(file)['data_list']
    assert [r['sample_idx'] for r in train] == [0]
    with open(paths[1], 'rb') as file:
        assert len(pickle.load(file)['data_list']) == 3
    # The same again does nothing; with the file back, all is made.
    assert convert_infos(root, allow_missing=True) == paths
    path.write_bytes(b'')
    with pytest.raises(DataError, match='left_out'):
        convert_infos(root)


def test_no_sensor_files_at_all(root):
    shutil.rmtree(root / 'samples')
    with pytest.raises(DataError, match='6 of 6 samples.*Unpack'):
        convert_infos(root, allow_missing=True)


@pytest.mark.skipif(os.geteuid() == 0, reason='root may write anywhere')
def test_folder_that_must_not_be_written(root, tmp_path):
    out = tmp_path / 'locked'
    out.mkdir(mode=0o500)
    with pytest.raises(DataError, match='cannot write .*locked'):
        convert_infos(root, out_dir=out)


@pytest.mark.parametrize('inner', ['', 'deep'])
def test_out_folder_that_is_a_file_or_below_one(root, tmp_path, inner):
    out = tmp_path / 'file'
    out.write_text('x')
    with pytest.raises(DataError, match=f'{out} is no folder'):
        convert_infos(root, out_dir=out / inner)


def run_tool(*args):
    spec = importlib.util.spec_from_file_location('create_data', TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(['nuscenes', *map(str, args)])


def test_command_converts_and_prints_one_line_on_errors(
        root, tmp_path, capsys):
    out = tmp_path / 'out'
    run_tool('--root', root, '--version', VERSION, '--out', out, '--prefix',
             'mini', '--workers', 1, '--no-cam-instances')
    assert sorted(p.name for p in out.iterdir()) == [
        'mini_dbinfos_train.pkl', 'mini_gt_database',
        'mini_gt_database.json', 'mini_gt_store', 'mini_infos.json',
        'mini_infos_train.pkl', 'mini_infos_val.pkl'
    ]
    assert 'mini_infos_train.pkl' in capsys.readouterr().out
    with pytest.raises(SystemExit, match='^error: .*it has v1.0-mini'):
        run_tool('--root', root, '--version', 'v1.0-test')
    with pytest.raises(SystemExit, match='^error: --workers must be 1'):
        run_tool('--root', root, '--version', VERSION, '--workers', 0)
    with pytest.raises(SystemExit, match='^error: --max-sweeps is negative'):
        run_tool('--root', root, '--version', VERSION, '--max-sweeps', -1)


def test_command_that_is_stopped_says_how_to_go_on(root, monkeypatch, capsys):
    count_parts(monkeypatch, until=0)
    with pytest.raises(SystemExit) as stop:
        run_tool('--root', root, '--version', VERSION, '--workers', 1)
    assert stop.value.code == 130
    assert 'run the same command again' in capsys.readouterr().err
