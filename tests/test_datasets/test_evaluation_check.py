"""A split or version that does not fit stops a run at its start (KF-G4)."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
from mmengine import Config

from mmturbox.datasets import DataError, check_data_configs
from mmturbox.datasets.info_check import info_head

VERSION = 'v1.0-mini'


@pytest.fixture
def root(synthetic_root, tmp_path):
    """Tables and info files of the set, for tests to spoil."""
    shutil.copytree(synthetic_root / VERSION, tmp_path / VERSION)
    for path in synthetic_root.glob('nuscenes_infos*'):
        shutil.copy(path, tmp_path)
    return tmp_path


def config(root, split='val', metric=None, **dataset):
    dataset = dict(
        type='mmdet3d.NuScenesDataset',
        data_root=str(root),
        ann_file='nuscenes_infos_val.pkl',
        metainfo=dict(version=VERSION),
        **dataset)
    evaluator = dict(
        type='NuScenesMetric',
        data_root=str(root),
        ann_file=str(root / f'nuscenes_infos_{split}.pkl'))
    return Config(
        dict(
            default_scope='mmdet3d',
            test_dataloader=dict(dataset=dataset),
            test_evaluator=dict(evaluator, **(metric or {}))))


def assert_refused(cfg, *texts):
    with pytest.raises(DataError) as error:
        check_data_configs(cfg, 'test')
    for text in texts:
        assert text in str(error.value)


@pytest.mark.parametrize('name', ['train', 'val'])
def test_head_is_version_and_first_token(root, name):
    path = root / f'nuscenes_infos_{name}.pkl'
    with open(path, 'rb') as file:
        data = pickle.load(file)
    expected = VERSION, data['data_list'][0]['token']
    assert info_head(path) == expected
    for protocol in range(6):
        path.write_bytes(pickle.dumps(data, protocol))
        assert info_head(path) == expected


def test_head_of_little_says_nothing(tmp_path):
    path = tmp_path / 'x.pkl'
    path.write_bytes(pickle.dumps(dict(metainfo={}, data_list=[])))
    assert info_head(path) == (None, None)


def test_what_fits_passes(root):
    check_data_configs(config(root), 'test')
    wrapped = config(root)
    inner = wrapped.test_dataloader.dataset
    wrapped.test_dataloader.dataset = dict(type='RepeatDataset', dataset=inner)
    wrapped.test_evaluator = [wrapped.test_evaluator]
    check_data_configs(wrapped, 'test')


def test_evaluator_of_another_split(root):
    assert_refused(
        config(root, 'train'), 'test_evaluator.ann_file', 'infos_train.pkl',
        'test_dataloader.dataset.ann_file', 'infos_val.pkl')


def test_training_split_cannot_be_evaluated(root):
    cfg = config(root, 'train')
    cfg.test_dataloader.dataset.ann_file = 'nuscenes_infos_train.pkl'
    assert_refused(cfg, 'scene-0061', 'not in mini_val', 'validation file')


def test_version_that_the_dataset_would_claim(root):
    cfg = config(root)
    del cfg.test_dataloader.dataset.metainfo
    assert_refused(cfg, "'v1.0-trainval'", 'test_dataloader.dataset.metainfo',
            "version='v1.0-mini'")
    cfg.test_dataloader.dataset.metainfo = dict(version='v1.0-test')
    assert_refused(cfg, "'v1.0-test'")


def test_tables_must_be_there(root):
    (root / VERSION).rename(root / 'v1.0-other')
    assert_refused(
        config(root), 'test_evaluator.data_root', str(root / VERSION),
        'v1.0-other')


def test_file_of_other_tables(root):
    path = root / VERSION / 'sample.json'
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([dict(row, token='x') for row in rows]))
    assert_refused(config(root), 'not made from the tables', 'create_data.py')


def test_part_of_a_split_cannot_be_evaluated(root):
    assert_refused(config(root, indices=10), 'dataset.indices', 'every sample')
    (root / 'nuscenes_infos.json').write_text(json.dumps(dict(left_out=['a'])))
    assert_refused(config(root), 'leaves out 1 samples')
    check_data_configs(
        config(root, indices=10, metric=dict(format_only=True)), 'test')


def test_test_set_is_for_the_server_only(root):
    path = root / 'nuscenes_infos_val.pkl'
    with open(path, 'rb') as file:
        data = pickle.load(file)
    data['metainfo']['version'] = 'v1.0-test'
    path.write_bytes(pickle.dumps(data))
    cfg = config(root)
    cfg.test_dataloader.dataset.metainfo.version = 'v1.0-test'
    assert_refused(cfg, "'v1.0-test'", 'format_only=True')
    cfg.test_evaluator.format_only = True
    check_data_configs(cfg, 'test')


def test_validation_is_checked_before_training(root):
    cfg = config(root, 'train')
    for name in ('dataloader', 'evaluator'):
        cfg[f'val_{name}'] = cfg.pop(f'test_{name}')
    with pytest.raises(DataError, match='val_evaluator.ann_file'):
        check_data_configs(cfg, 'train')


def test_other_evaluators_only_need_the_same_file(root):
    cfg = config(root, 'train', dict(type='KittiMetric'))
    assert_refused(cfg, 'judged by the other')
    cfg.test_evaluator.ann_file = str(root / 'annotations.json')
    Path(cfg.test_evaluator.ann_file).write_text('{}')
    check_data_configs(cfg, 'test')


def test_empty_model_writes_an_entry_for_every_sample(synthetic_root,
                                                      tmp_path):
    """Through mmdet3d's own metric (the devkit does not evaluate a file
    without a single box)."""
    import torch

    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    import mmdet3d.datasets  # noqa: F401
    from mmdet3d.evaluation import NuScenesMetric
    from mmdet3d.structures import LiDARInstance3DBoxes
    path = synthetic_root / 'nuscenes_infos_val.pkl'
    with open(path, 'rb') as file:
        tokens = [r['token'] for r in pickle.load(file)['data_list']]
    metric = NuScenesMetric(
        data_root=str(synthetic_root),
        ann_file=str(path),
        format_only=True,
        jsonfile_prefix=str(tmp_path / 'results'))
    metric.dataset_meta = dict(
        mmdet3d.datasets.NuScenesDataset.METAINFO, version=VERSION)
    for i in range(len(tokens)):
        nothing = dict(
            bboxes_3d=LiDARInstance3DBoxes(torch.zeros(0, 9), box_dim=9),
            labels_3d=torch.zeros(0, dtype=torch.long),
            scores_3d=torch.zeros(0))
        metric.process({}, [
            dict(
                sample_idx=i,
                pred_instances={},
                pred_instances_3d=nothing)
        ])
    metric.evaluate(len(tokens))
    written, = (tmp_path / 'results').rglob('results_nusc.json')
    results = json.loads(written.read_text())['results']
    assert set(results) == set(tokens)
    assert not any(results.values())
