"""The switch: what it turns on, what stays stock, and the known traps."""

import subprocess
import sys
import textwrap

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from mmturbox import enable
from mmturbox.runner import TurboRunner


@pytest.fixture(autouse=True)
def seam():
    enable.install()
    yield
    enable.undo()


def config(tmp_path, **more):
    from mmengine.model import BaseModel
    from mmengine.registry import MODELS

    class Model(BaseModel):

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, inputs, data_samples=None, mode='tensor'):
            return self.layer(inputs)

    MODELS.register_module(name='_Net', module=Model, force=True)
    return Config(
        dict(model=dict(type='_Net'), work_dir=str(tmp_path), **more))


def test_runner_from_cfg_builds_a_turbo_runner(tmp_path):
    assert type(Runner.from_cfg(config(tmp_path))) is TurboRunner


def test_setting_the_seam_twice_is_setting_it_once(tmp_path):
    first = Runner.__dict__['from_cfg']
    enable.install()
    assert Runner.__dict__['from_cfg'] is first
    enable.undo()
    assert type(Runner.from_cfg(config(tmp_path))) is Runner
    enable.undo()


def test_mmturbox_0_keeps_the_stock_runner(tmp_path, monkeypatch):
    monkeypatch.setenv('MMTURBOX', '0')
    runner = Runner.from_cfg(config(tmp_path))
    assert type(runner) is Runner
    assert 'turbo' not in runner.cfg


def test_a_runner_subclass_of_the_user_stays_stock(tmp_path):

    class Mine(Runner):
        pass

    assert type(Mine.from_cfg(config(tmp_path))) is Mine


def run(code, tmp_path, *args):
    script = tmp_path / 'script.py'
    script.write_text(textwrap.dedent(code))
    done = subprocess.run([sys.executable, str(script), *args],
                          cwd=tmp_path,
                          capture_output=True,
                          text=True,
                          timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


CHECK = '''
    import sys
    from mmengine.config import Config
    from mmengine.runner import Runner
    cfg = Config.fromfile(sys.argv[1])
    print('seam', Runner.from_cfg.__func__.__module__)
'''


# KF-F1: the working folder is empty and is not the repository.
def test_custom_imports_switch_it_on_from_any_folder(tmp_path):
    (tmp_path / 'c.py').write_text(
        "custom_imports = dict(imports=['mmturbox.enable'])\n")
    assert 'seam mmturbox.enable' in run(CHECK, tmp_path, 'c.py')


# The three traps below are MMEngine's rules; the tests hold what we say of
# them in the README.
def test_a_child_config_that_replaces_custom_imports_stays_stock(tmp_path):
    (tmp_path / 'base.py').write_text(
        "custom_imports = dict(imports=['mmturbox.enable'])\n")
    (tmp_path / 'c.py').write_text("_base_ = './base.py'\n"
                                   "custom_imports = dict(imports=['json'])\n")
    assert 'seam mmengine.runner' in run(CHECK, tmp_path, 'c.py')


def test_custom_imports_from_the_command_line_come_too_late(tmp_path):
    (tmp_path / 'c.py').write_text('x = 1\n')
    out = run(
        CHECK.replace(
            'print(', "cfg.merge_from_dict({'custom_imports.imports': "
            "['mmturbox.enable']})\n    print("), tmp_path, 'c.py')
    assert 'seam mmengine.runner' in out


def test_runner_type_needs_no_import_line(tmp_path):
    out = run(
        '''
        from mmengine.registry import RUNNERS
        print(RUNNERS.get('mmturbox.TurboRunner').__name__)
    ''', tmp_path)
    assert 'TurboRunner' in out


def test_register_adds_names_and_sets_no_seam(tmp_path):
    out = run(
        '''
        import mmturbox.register
        from mmengine.registry import HOOKS, RUNNERS
        from mmengine.runner import Runner
        print(RUNNERS.get('mmturbox.TurboRunner').__name__)
        print('seam', Runner.from_cfg.__func__.__module__)
    ''', tmp_path)
    assert 'TurboRunner' in out and 'seam mmengine.runner' in out


def test_a_pure_python_config_switches_on_by_runner_type(tmp_path):
    (tmp_path / 'base.py').write_text('y = 2\n')
    (tmp_path / 'c.py').write_text(
        'from mmengine.config import read_base\n'
        'with read_base():\n    from .base import *\n'
        "custom_imports = dict(imports=['mmturbox.enable'])\n"
        "runner_type = 'mmturbox.TurboRunner'\n")
    out = run(
        '''
        import sys
        from mmengine.config import Config
        from mmengine.registry import RUNNERS
        cfg = Config.fromfile(sys.argv[1])
        print(RUNNERS.get(cfg.runner_type).__name__)
    ''', tmp_path, 'c.py')
    assert 'TurboRunner' in out
