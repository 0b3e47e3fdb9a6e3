"""tools/train.py and tools/test.py, as a user starts them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mmturbox

ROOT = Path(__file__).parents[2]
TOY = Path(__file__).parent / 'toy'
CONFIG = str(TOY / 'toy_config.py')
OLD_CONFIG = str(TOY / 'mmcv1_config.py')
QUICK_START = str(
    ROOT / 'configs/quickstart/centerpoint-pillar_tiny_1xb2_synthetic-nus.py')


def run(tool, *args, cwd, **environ):
    clean = {
        k: v
        for k, v in os.environ.items()
        if k not in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MMTURBOX')
    }
    return subprocess.run(
        [sys.executable, str(ROOT / 'tools' / tool), *args],
        env={**clean, 'PYTHONPATH': str(TOY), **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120)


def report(folder, rank=0):
    return json.loads(Path(folder, f'rank{rank}.json').read_text())


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A finished run in its default work dir, started from another folder."""
    folder = tmp_path_factory.mktemp('trained')
    done = run('train.py', CONFIG, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_training_is_turbo_and_lands_in_the_default_work_dir(trained):
    folder, done = trained
    work_dir = folder / 'work_dirs' / 'toy_config'
    assert report(work_dir)['runner'] == 'TurboRunner'
    assert (work_dir / 'epoch_1.pth').is_file()
    assert (work_dir / 'turbo_plan.json').is_file()
    assert 'this run is stock' not in done.stdout


def test_resume_without_a_value_takes_the_newest_checkpoint(trained):
    # KF-C5: resuming works on this torch.
    folder, _ = trained
    done = run(
        'train.py',
        CONFIG,
        '--resume',
        '--cfg-options',
        'train_cfg.max_epochs=2',
        cwd=folder)
    assert done.returncode == 0, done.stderr
    assert 'resumed epoch: 1' in done.stdout + done.stderr
    assert (folder / 'work_dirs/toy_config/epoch_2.pth').is_file()


def test_checkpoint_is_tested(trained):
    folder, _ = trained
    checkpoint = str(folder / 'work_dirs/toy_config/epoch_1.pth')
    done = run('test.py', CONFIG, checkpoint, '--work-dir', 'out', cwd=folder)
    assert done.returncode == 0, done.stderr
    assert 'seen: 16' in done.stdout + done.stderr


def test_mmturbox_0_trains_the_same_file_stock(tmp_path):
    done = run(
        'train.py', CONFIG, '--work-dir', 'out', cwd=tmp_path, MMTURBOX='0')
    assert done.returncode == 0, done.stderr
    assert report(tmp_path / 'out')['runner'] == 'Runner'
    assert '[mmturbox] this run is stock: MMTURBOX=0' in done.stdout


@pytest.mark.parametrize(('tool', 'args', 'text'), [
    ('train.py', ['no.py'], "no config file 'no.py'"),
    ('train.py', [CONFIG, '--amp'], '--amp'),
    ('train.py', [CONFIG, '--auto-scale-lr'], 'base_batch_size'),
    ('train.py', [CONFIG, '--resume', 'no.pth'], "'no.pth'"),
    ('train.py', [CONFIG, '--work-dir', '/dev/null/x'], 'work dir'),
    ('train.py', [CONFIG, '--cfg-options', 'train_dataloader=None'],
     'no train_dataloader'),
    ('train.py', [CONFIG, '--cfg-options', 'custom_imports.imports=[x]'],
     'has no effect'),
    ('train.py', [CONFIG, '--cfg-options', 'turbo.no_pass=True'],
     "unknown turbo option 'no_pass'"),
    ('train.py', [CONFIG, '--cfg-options', 'turbo.center_head=True'],
     'turbo.center_head was asked for by name but cannot apply: '),
    ('train.py', [CONFIG, '--cfg-options', 'turbo.ddp.static_graph=7'],
     'turbo.ddp.static_graph must be a bool'),
    ('train.py', [CONFIG, '--cfg-options', 'train_dataloader=5'],
     'train_dataloader must be a dict'),
    ('train.py', [OLD_CONFIG], 'written for mmcv 1.x'),
    ('train.py', [QUICK_START, '--cfg-options',
                  'train_dataloader.dataset.data_root=no/'],
     'the data root no/'),
    ('explain.py', ['no.py'], "no config file 'no.py'"),
    ('explain.py', [OLD_CONFIG], 'written for mmcv 1.x'),
    ('explain.py', [CONFIG, '--cfg-options', 'turbo.lodr=True'],
     "did you mean 'loader'"),
    ('explain.py', [CONFIG, '--cfg-options', 'turbo.ddp=True'],
     'needs more than one process'),
    ('test.py', [CONFIG, 'no.pth'], "no checkpoint 'no.pth'"),
    ('test.py', [CONFIG, CONFIG, '--tta'], 'tta_model'),
    ('test.py', [CONFIG, CONFIG, '--show'], 'visualization hook'),
])
def test_bad_input_is_one_clear_error(tmp_path, monkeypatch, tool, args,
                                      text):
    from mmturbox.system.cli import run_program
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TOY))
    monkeypatch.setenv('LOCAL_RANK', '0')
    monkeypatch.setattr(sys, 'argv', [tool, *args])
    path = ROOT / 'tools' / tool
    spec = importlib.util.spec_from_file_location(f'tool_{path.stem}', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        with pytest.raises(SystemExit) as stopped:
            run_program(module.main, f'tools/{tool}')
    finally:
        if 'mmturbox.enable' in sys.modules:
            # So that the next config imports it anew.
            sys.modules.pop('mmturbox.enable').undo()
            vars(mmturbox).pop('enable', None)
    message = str(stopped.value)
    assert message.startswith(f'tools/{tool}: ') and '\n' not in message
    assert text in message


def test_an_error_ends_the_program_with_one_line(tmp_path):
    done = run('train.py', 'no.py', cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tools/train.py: there is no config file")
    assert len(done.stderr.strip().splitlines()) == 1
