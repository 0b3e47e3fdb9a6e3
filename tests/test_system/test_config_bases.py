import os

import pytest

from mmturbox.system import config_bases
from mmturbox.system.patches import Patches


def test_installed_is_known_by_package_and_by_distribution_name():
    assert config_bases.is_installed('mmengine')
    assert config_bases.is_installed('mmturbox')
    assert not config_bases.is_installed('no_such_package')


def test_path_is_found_by_package_and_by_distribution_name():
    import mmengine
    folder = os.path.dirname(mmengine.__file__)
    assert config_bases.get_installed_path('mmengine') == folder
    import yaml
    folder = os.path.dirname(yaml.__file__)
    assert config_bases.get_installed_path('PyYAML') == folder


def test_absent_package_is_named():
    with pytest.raises(ModuleNotFoundError, match='no-such-thing'):
        config_bases.get_installed_path('no-such-thing')


def test_base_of_another_package_is_read_without_pkg_resources(
        tmp_path, monkeypatch):
    pytest.importorskip('mmdet3d')
    from mmengine.config import Config

    # As on a machine with setuptools >= 82, whatever this one has.
    find_spec = config_bases.importlib.util.find_spec
    monkeypatch.setattr(
        config_bases.importlib.util, 'find_spec', lambda name: None
        if name == 'pkg_resources' else find_spec(name))
    path = tmp_path / 'child.py'
    path.write_text("_base_ = 'mmdet3d::_base_/schedules/cyclic-20e.py'\n"
                    'mine = 1\n')
    patches = Patches()
    try:
        config_bases.install(patches)
        cfg = Config.fromfile(str(path))
    finally:
        patches.undo()
    assert cfg.mine == 1 and cfg.train_cfg.max_epochs == 20
