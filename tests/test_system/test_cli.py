import argparse
import sys

import pytest
from mmengine.config import Config

from mmturbox.errors import ConfigError
from mmturbox.system import cli


def load(path, **changes):
    args = dict(
        config=str(path),
        cfg_options=None,
        work_dir=None,
        launcher='none',
        local_rank=None)
    return cli.load_config(argparse.Namespace(**{**args, **changes}))


@pytest.fixture(autouse=True)
def rank(monkeypatch):
    monkeypatch.setenv('LOCAL_RANK', '0')
    monkeypatch.delenv('MMTURBOX', raising=False)


def test_work_dir_is_argument_then_config_then_name(tmp_path):
    path = tmp_path / 'some_name.py'
    path.write_text('a = 1\n')
    assert load(path).work_dir == './work_dirs/some_name'
    path.write_text('work_dir = "mine"\n')
    assert load(path).work_dir == 'mine'
    assert load(path, work_dir='given').work_dir == 'given'


@pytest.mark.parametrize(('text', 'message'), [
    ("_base_ = 'nothing.py'", 'nothing.py'),
    ("_base_ = 'no_such_package::a/b.py'", 'no_such_package'),
    ('a = (', 'cannot be read'),
    ("custom_imports = dict(imports=['no_such_module'])", 'no_such_module'),
])
def test_config_that_cannot_be_read_is_named(tmp_path, text, message):
    path = tmp_path / 'config.py'
    path.write_text(text + '\n')
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_inner_import_failure_shows_its_own_cause(tmp_path, monkeypatch):
    # KF-F1: not the plug-in is missing, but what it needs.
    (tmp_path / 'plugin_of_test.py').write_text('import missing_library\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / 'config.py'
    path.write_text("custom_imports = dict(imports=['plugin_of_test'])\n")
    with pytest.raises(ConfigError, match="No module named 'missing_library'"):
        load(path)


def test_hidden_projects_are_named_where_an_import_fails(
        tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.split('.')[0] == 'projects']:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / 'projects').mkdir()
    (tmp_path / 'projects' / '__init__.py').touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / 'config.py'
    path.write_text("custom_imports = dict(imports=['projects.absent'])\n")
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(tmp_path / 'projects') in str(error.value)
    assert '__init__.py' in str(error.value)
    monkeypatch.delitem(sys.modules, 'projects')


@pytest.mark.parametrize('key', ['custom_imports', 'custom_imports.imports'])
def test_custom_imports_among_the_options_are_refused(tmp_path, key):
    path = tmp_path / 'config.py'
    path.write_text('a = 1\n')
    with pytest.raises(ConfigError, match='has no effect'):
        load(path, cfg_options={key: ['mmturbox.enable']})


@pytest.fixture
def seam():
    """mmturbox.enable as a config would import it, gone afterwards."""
    from mmturbox import enable
    enable.install()
    yield
    enable.undo()


@pytest.fixture
def no_seam():
    if 'mmturbox.enable' in sys.modules:
        sys.modules['mmturbox.enable'].undo()


def test_run_under_the_seam_is_not_stock(seam, monkeypatch):
    assert cli.stock_reason(Config(dict())) is None
    monkeypatch.setenv('MMTURBOX', '0')
    assert cli.stock_reason(Config(dict())) == 'MMTURBOX=0'


def test_runner_type_decides_over_the_seam(seam, no_seam):
    turbo = Config(dict(runner_type='mmturbox.TurboRunner'))
    assert cli.stock_reason(turbo) is None
    own = Config(dict(runner_type='MyRunner'))
    assert 'MyRunner is not a TurboRunner' in cli.stock_reason(own)


def test_config_without_the_switch_is_stock_and_says_so(no_seam):
    reason = cli.stock_reason(Config(dict()))
    assert "do not hold 'mmturbox.enable'" in reason


def test_pure_python_config_is_stock_and_says_so(no_seam, tmp_path):
    path = tmp_path / 'pure.py'
    path.write_text('from mmengine.runner import EpochBasedTrainLoop\n'
                    "custom_imports = dict(imports=['mmturbox.enable'])\n"
                    'train_cfg = dict(type=EpochBasedTrainLoop)\n')
    cfg = load(path)
    assert 'pure-Python config' in cli.stock_reason(cfg)


def test_program_ends_with_one_line_for_a_config_error():

    def main():
        raise ConfigError('wrong thing')

    with pytest.raises(SystemExit, match='^tool: wrong thing$'):
        cli.run_program(main, 'tool')
