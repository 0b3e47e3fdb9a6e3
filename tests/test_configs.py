"""Every shipped config loads, dumps, reloads equal and pickles (KF-F3)."""

import pickle
from pathlib import Path

import pytest
from mmengine import Config

ROOT = Path(__file__).parents[1]
# mmengine's parser cannot read a base config from a ':' in a test id.
CONFIGS = sorted(
    str(path.relative_to(ROOT)) for pattern in
    ('configs/**/*.py', 'projects/*/configs/**/*.py')
    for path in ROOT.glob(pattern))


def load(path):
    # The switch is tested elsewhere; here it would outlive the test.
    return Config.fromfile(path, import_custom_modules=False)


def test_there_are_configs():
    assert 'configs/quickstart/centerpoint-pillar_tiny_1xb2_synthetic-nus.py' \
        in CONFIGS


@pytest.mark.parametrize('name', CONFIGS)
def test_config_survives_dump_reload_and_pickle(name, tmp_path, monkeypatch):
    # From any working folder.
    monkeypatch.chdir(tmp_path)
    cfg = load(ROOT / name)
    cfg.dump(tmp_path / 'dumped.py')
    again = load(tmp_path / 'dumped.py')
    assert again.to_dict() == cfg.to_dict()
    copy = pickle.loads(pickle.dumps(cfg))
    assert copy.to_dict() == cfg.to_dict()
    assert copy.pretty_text == cfg.pretty_text
