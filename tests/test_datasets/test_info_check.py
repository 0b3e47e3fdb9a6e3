"""Missing data and info files of another version stop a run (KF-G1)."""

import os
import pickle

import pytest
from mmengine import Config
from mmengine.dataset import BaseDataset

from mmturbox.datasets import (
    DataError,
    check_data_configs,
    check_info_file,
)
from mmturbox.datasets.info_check import info_layout

NEW = dict(metainfo=dict(version='v1.0-mini'), data_list=[dict(token='a')])
OLD = dict(infos=[dict(token='a')], metadata=dict(version='v1.0-mini'))


class Plain(BaseDataset):
    pass


class OwnReader(BaseDataset):

    def load_data_list(self):
        return []


@pytest.fixture
def root(tmp_path):
    for name, data in dict(
            new=NEW, old=OLD, records=[dict(a=1)], other=dict(x=1)).items():
        with open(tmp_path / f'{name}.pkl', 'wb') as file:
            pickle.dump(data, file)
    return tmp_path


def config(root, ann_file='new.pkl', wrap=lambda d: d, **kwargs):
    dataset = dict(
        type=Plain, data_root=str(root), ann_file=ann_file, **kwargs)
    return Config(dict(train_dataloader=dict(dataset=wrap(dataset))))


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize('data, layout', [
    (NEW, 'new'),
    (dict(reversed(NEW.items())), 'new'),
    (OLD, 'old'),
    (dict(reversed(OLD.items())), 'old'),
    ([dict(a=1)], 'list'),
    (dict(x=1), 'other'),
    ({}, 'other'),
    (3, 'other'),
])
def test_layout_is_told_for_every_pickle_protocol(tmp_path, data, layout,
                                                  protocol):
    path = tmp_path / 'infos.pkl'
    path.write_bytes(pickle.dumps(data, protocol))
    assert info_layout(path) == layout


def test_new_layout_passes(root):
    check_info_file(root / 'new.pkl')


@pytest.mark.parametrize('name, remedy', [
    ('old', 'create_data.py update-infos'),
    ('records', 'update_infos_to_v2.py'),
])
def test_old_layout_names_found_needed_and_conversion(root, name, remedy):
    with pytest.raises(DataError) as error:
        check_info_file(root / f'{name}.pkl')
    text = str(error.value)
    assert f'{name}.pkl' in text
    assert 'old layout of mmdet3d before 1.1' in text
    assert 'mmdet3d 1.1 and later' in text and 'data_list' in text
    assert remedy in text


@pytest.mark.parametrize('content', [
    b'', b'not a pickle at all',
    pickle.dumps(NEW)[:-1],
    pickle.dumps(NEW)[:12], b'\x80\x04'
])
def test_broken_file_is_named_as_such(tmp_path, content):
    path = tmp_path / 'infos.pkl'
    path.write_bytes(content)
    with pytest.raises(DataError, match='infos.pkl is broken'):
        check_info_file(path)


def test_looking_executes_nothing(tmp_path):

    class Evil:

        def __reduce__(self):
            return os.mkdir, (str(tmp_path / 'made'), )

    path = tmp_path / 'infos.pkl'
    path.write_bytes(pickle.dumps(dict(metainfo=Evil(), data_list=[])))
    check_info_file(path)
    assert not (tmp_path / 'made').exists()


def test_config_with_good_data_passes(root):
    check_data_configs(config(root))


def test_missing_data_root_names_key_path_and_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        check_data_configs(config('data/synthetic-nuscenes/'))
    text = str(error.value)
    assert 'train_dataloader.dataset.data_root' in text
    assert 'data/synthetic-nuscenes/' in text
    assert 'create_data.py synthetic-nuscenes' in text


def test_missing_ann_file_is_named(root):
    with pytest.raises(DataError, match='ann_file.*nothing.pkl'):
        check_data_configs(config(root, 'nothing.pkl'))


@pytest.mark.parametrize('wrap, where', [
    (lambda d: dict(type='RepeatDataset', times=2, dataset=d),
     'dataset.dataset.ann_file'),
    (lambda d: dict(
        type='RepeatDataset',
        dataset=dict(type='CBGSDataset', dataset=d)),
     'dataset.dataset.dataset.ann_file'),
    (lambda d: dict(
        type='ConcatDataset', datasets=[dict(d, ann_file='new.pkl'), d]),
     'dataset.datasets.1.ann_file'),
])
def test_wrapped_datasets_are_found(root, wrap, where):
    with pytest.raises(DataError, match=f'train_dataloader.{where}.*old'):
        check_data_configs(config(root, 'old.pkl', wrap))


def test_only_what_the_run_reads_is_checked(root):
    cfg = config(root)
    cfg.test_dataloader = config('nowhere').train_dataloader
    check_data_configs(cfg, 'train')
    with pytest.raises(DataError, match='test_dataloader'):
        check_data_configs(cfg, 'test')


def test_evaluators_are_checked(root):
    cfg = config(root)
    cfg.val_dataloader = cfg.train_dataloader
    cfg.val_evaluator = [dict(type='X'), dict(type='Y', ann_file='no.pkl')]
    with pytest.raises(DataError, match='val_evaluator.1.ann_file.*no.pkl'):
        check_data_configs(cfg)


@pytest.mark.parametrize('kwargs', [
    dict(backend_args=dict(backend='petrel')),
    dict(data_root='s3://bucket/'),
    dict(data_root='', ann_file='s3://bucket/x.pkl'),
    dict(ann_file=''),
])
def test_remote_or_absent_paths_are_left_alone(kwargs):
    base = dict(type=Plain, data_root='nowhere', ann_file='x.pkl')
    check_data_configs(
        Config(dict(train_dataloader=dict(dataset={**base, **kwargs}))))


def test_a_dataset_that_reads_its_own_layout_is_left_alone(root):
    cfg = config(root, 'old.pkl')
    cfg.train_dataloader.dataset.type = OwnReader
    check_data_configs(cfg)
    cfg.train_dataloader.dataset.type = Plain
    with pytest.raises(DataError):
        check_data_configs(cfg)


@pytest.mark.parametrize('name, scope', [
    ('NuScenesDataset', 'mmdet3d'),
    ('mmdet3d.NuScenesDataset', None),
])
def test_mmdet3ds_own_dataset_is_found_by_name(root, name, scope):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    cfg = config(root, 'old.pkl')
    cfg.train_dataloader.dataset.type = name
    cfg.default_scope = scope
    with pytest.raises(DataError, match='update-infos'):
        check_data_configs(cfg)
