import importlib
import sys

import pytest
from mmengine.config import Config

from mmturbox.system.preflight import (
    ConfigError,
    foreign_projects,
    preflight,
)


def config(**changes):
    cfg = dict(train_dataloader=dict(batch_size=1), train_cfg=dict())
    cfg.update(changes)
    return Config({k: v for k, v in cfg.items() if v is not None})


def test_a_sound_config_passes_and_its_work_dir_exists(tmp_path):
    preflight(config(work_dir=str(tmp_path / 'a' / 'b')), 'train')
    assert list((tmp_path / 'a' / 'b').iterdir()) == []


@pytest.mark.parametrize(('key', 'value'), [
    ('plugin_dir', 'projects/plugin'),
    ('data', dict(samples_per_gpu=2, workers_per_gpu=2)),
    ('data', dict(train=dict(type='X'))),
    ('total_epochs', 24),
])
def test_config_for_mmcv_1_is_named_as_such(key, value):
    cfg = config(train_dataloader=None, train_cfg=None, **{key: value})
    with pytest.raises(ConfigError, match=f'mmcv 1.x.*{key}'):
        preflight(cfg, 'train')


def test_new_config_may_have_a_plugin_dir_of_its_own(tmp_path):
    cfg = config(plugin_dir='x', work_dir=str(tmp_path / 'a'))
    preflight(cfg, 'train')
    assert (tmp_path / 'a').is_dir() and cfg.plugin_dir == 'x'


@pytest.mark.parametrize(('cfg', 'mode'), [
    (config(train_dataloader=None), None),
    (config(train_dataloader=None, train_cfg=None), 'train'),
])
def test_missing_train_dataloader_is_named(cfg, mode):
    with pytest.raises(ConfigError, match='no train_dataloader'):
        preflight(cfg, mode)


def test_testing_needs_no_train_dataloader_but_a_test_dataloader():
    cfg = config(
        train_dataloader=None, train_cfg=None, test_dataloader=dict())
    preflight(cfg, 'test')
    cfg.pop('test_dataloader')
    with pytest.raises(ConfigError, match='no test_dataloader'):
        preflight(cfg, 'test')


def test_work_dir_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / 'file').touch()
    folder = str(tmp_path / 'file' / 'dir')
    with pytest.raises(ConfigError, match='--work-dir') as error:
        preflight(config(work_dir=folder))
    assert folder in str(error.value)


@pytest.mark.parametrize('kind', ['AmpOptimWrapper', 'mmengine.AmpOptimWrapper'
                                  ])
def test_amp_is_refused_on_the_cpu_only(monkeypatch, kind):
    cfg = config(optim_wrapper=dict(type=kind))
    monkeypatch.setattr('mmengine.device.get_device', lambda: 'cuda')
    preflight(cfg)
    monkeypatch.setattr('mmengine.device.get_device', lambda: 'cpu')
    with pytest.raises(ConfigError, match='--amp'):
        preflight(cfg)


def test_sync_bn_is_refused_on_the_cpu_when_distributed(monkeypatch):
    monkeypatch.setattr('mmengine.device.get_device', lambda: 'cpu')
    preflight(config(sync_bn='torch'))
    with pytest.raises(ConfigError, match='sync_bn'):
        preflight(config(sync_bn='torch', launcher='pytorch'))


def test_data_is_checked_where_the_mode_is_known(tmp_path):
    missing = str(tmp_path / 'nowhere')
    cfg = config(
        train_dataloader=dict(
            batch_size=1,
            dataset=dict(
                type='NuScenesDataset',
                data_root=missing,
                ann_file='infos.pkl')))
    preflight(cfg)
    with pytest.raises(ValueError, match='nowhere'):
        preflight(cfg, 'train')


@pytest.fixture
def forget_projects(monkeypatch):
    """Look 'projects' up anew, as a fresh process would."""
    for name in [n for n in sys.modules if n.split('.')[0] == 'projects']:
        monkeypatch.delitem(sys.modules, name)
    yield
    importlib.invalidate_caches()


def test_projects_package_of_another_checkout_is_found(tmp_path, monkeypatch,
                                                       forget_projects):
    assert foreign_projects() is None
    (tmp_path / 'projects').mkdir()
    (tmp_path / 'projects' / '__init__.py').touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_projects() == str(tmp_path / 'projects')


def test_namespace_projects_of_another_checkout_do_not_hide_ours(
        tmp_path, monkeypatch, forget_projects):
    (tmp_path / 'projects' / 'Other').mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_projects() is None
