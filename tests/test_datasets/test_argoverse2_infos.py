"""Info files of a motion-forecasting set, and what stops the conversion."""

import argparse
import os
import pickle
import shutil

import pytest

from mmturbox.datasets import DataError, check_info_file
from mmturbox.datasets.argoverse2 import infos as module
from mmturbox.datasets.argoverse2 import read_scenario, write_infos
from mmturbox.datasets.commands import argoverse2 as command
from mmturbox.datasets.shards import default_workers


@pytest.fixture
def root(argoverse2_root, tmp_path):
    """Eight scenarios to validate: copies of one under other names."""
    source, = (argoverse2_root / 'val').iterdir()
    for i in (3, 1, 7, 0, 6, 2, 5, 4):
        shutil.copytree(source, tmp_path / 'set' / 'val' / f'scenario-{i}')
    return tmp_path / 'set'


def load(path):
    with open(path, 'rb') as file:
        return pickle.load(file)


def names_of(path):
    return [row['scenario_path'].split('/')[1]
            for row in load(path)['data_list']]


def test_entry_says_what_the_scenario_holds(argoverse2_root):
    for split in ('train', 'val', 'test'):
        path = argoverse2_root / f'argoverse2_infos_{split}.pkl'
        check_info_file(path)
        data = load(path)
        assert data['metainfo']['dataset'] == 'argoverse2'
        assert data['metainfo']['split'] == split
        row, = data['data_list']
        scenario = read_scenario(argoverse2_root / row['scenario_path'])
        tracks, local_map = scenario.tracks, scenario.map
        assert (argoverse2_root / row['map_path']).is_file()
        assert row['scenario_id'] == tracks.scenario_id
        assert row['city'] == tracks.city
        assert row['focal_track_id'] == tracks.ids[tracks.focal_index]
        assert row['end_timestamp'] - row['start_timestamp'] == 10_900_000_000
        assert row['num_timestamps'] == 110
        assert row['num_tracks'] == len(tracks.ids)
        assert row['num_scored'] == (tracks.category == 2).sum()
        assert row['num_lanes'] == len(local_map.lane_id)
        assert row['num_crossings'] == len(local_map.crossing_id)
        assert row['num_map_points'] == local_map.num_points
        seen = [valid[:50] for valid in tracks.valid if valid[:50].any()]
        assert row['num_agents'] == len(seen)
        assert row['num_current'] == sum(valid[49] for valid in seen)
        assert row['num_agent_steps'] == sum(valid.sum() for valid in seen)


def test_order_is_that_of_the_names_whatever_the_file_system(
        root, monkeypatch):
    # KF-G5
    scandir = os.scandir

    class Reversed:

        def __init__(self, path):
            self.entries = sorted(
                scandir(path), key=lambda e: e.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(module.os, 'scandir', Reversed)
    path, = write_infos(root)
    assert names_of(path) == [f'scenario-{i}' for i in range(8)]


def test_files_do_not_depend_on_processes_or_shards(root, tmp_path,
                                                    monkeypatch):
    one, = write_infos(root, out=tmp_path / 'one')
    monkeypatch.setattr(module, 'SHARD_SCENARIOS', 3)
    two, = write_infos(root, out=tmp_path / 'two', workers=2)
    assert load(one) == load(two)
    assert sorted(p.name for p in two.parent.iterdir()) == [
        'argoverse2_infos_val.json', 'argoverse2_infos_val.pkl'
    ]


def test_stopped_run_goes_on_and_a_done_one_does_nothing(root, monkeypatch):
    monkeypatch.setattr(module, 'SHARD_SCENARIOS', 2)
    broken = next((root / 'val' / 'scenario-5').glob('*.parquet'))
    content = broken.read_bytes()
    broken.write_bytes(content[:500])
    with pytest.raises(DataError, match=f'scenario-5.*{broken.name}'):
        write_infos(root)
    assert not list(root.glob('*.pkl'))
    broken.write_bytes(content)
    read = []
    monkeypatch.setattr(
        module, 'read_scenario',
        lambda path: read.append(path) or read_scenario(path))
    path, = write_infos(root)
    assert [p.parent.name for p in read] == [
        f'scenario-{i}' for i in (4, 5, 6, 7)
    ]
    assert names_of(path) == [f'scenario-{i}' for i in range(8)]
    assert write_infos(root) == [path] and len(read) == 4


def test_files_of_other_scenarios_are_replaced_only_on_request(root):
    path, = write_infos(root)
    before = path.read_bytes()
    shutil.rmtree(root / 'val' / 'scenario-2')
    with pytest.raises(DataError, match='other scenarios.*--overwrite'):
        write_infos(root)
    assert path.read_bytes() == before
    write_infos(root, overwrite=True)
    assert len(names_of(path)) == 7


def test_chosen_splits_and_prefix(argoverse2_root, tmp_path):
    paths = write_infos(argoverse2_root, ['val', 'train'], tmp_path, 'mini')
    assert [p.name for p in paths] == [
        'mini_infos_train.pkl', 'mini_infos_val.pkl'
    ]
    with pytest.raises(DataError, match=r"unknown splits \['tset'\]"):
        write_infos(argoverse2_root, ['tset'])


def test_folder_that_is_no_set_says_what_was_expected_and_found(
        argoverse2_root, tmp_path):
    with pytest.raises(DataError, match='nowhere is no folder'):
        write_infos(tmp_path / 'nowhere')
    with pytest.raises(DataError, match='expected <split>/.*found nothing'):
        write_infos(tmp_path)
    scenario, = (argoverse2_root / 'val').iterdir()
    with pytest.raises(DataError,
                       match=f'expected.*found {scenario.name}.*Give the'):
        write_infos(scenario.parent)


@pytest.mark.parametrize('inner', ['', 'deep'])
def test_out_folder_that_is_a_file_or_below_one(root, tmp_path, inner):
    out = tmp_path / 'file'
    out.write_text('x')
    with pytest.raises(DataError, match=f'{out} is no folder'):
        write_infos(root, out=out / inner)


def test_command_works_on_all_cores_if_not_told_otherwise():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert parser.parse_args(['--root', 'x']).workers == default_workers()


def test_missing_and_empty_splits_are_named(root):
    with pytest.raises(DataError, match=r"lacks the splits \['train'\]"):
        write_infos(root, ['train', 'val'])
    (root / 'train').mkdir()
    with pytest.raises(DataError, match='train holds no scenarios'):
        write_infos(root)


def test_scenario_that_lacks_a_file_is_named(root):
    path = next((root / 'val' / 'scenario-0').glob('*.json'))
    path.unlink()
    with pytest.raises(DataError, match=f'scenario-0/{path.name} does not'):
        write_infos(root)
    next(path.parent.glob('*.parquet')).rename(path.with_name('x.parquet'))
    with pytest.raises(DataError, match='scenario-0 has 0 files.*x.parquet'):
        write_infos(root)
