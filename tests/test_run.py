"""python -m mmturbox.run: scripts that import mmcv.ops at once."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip('mmcv')
TOY = Path(__file__).parent / 'test_tools' / 'toy'

SCRIPT = '''
import mmcv.ops
import multiprocessing
import os
import sys
import neighbour


def child(queue):
    from mmcv.ops import nms
    queue.put(nms.__module__)


if __name__ == '__main__':
    context = multiprocessing.get_context('spawn')
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, ))
    process.start()
    print(queue.get(timeout=60), sys.argv[1:], os.environ['LOCAL_RANK'],
          os.environ['RANK'], neighbour.__name__)
    process.join()
'''


def run(*args, **environ):
    clean = {
        k: v
        for k, v in os.environ.items()
        if k not in ('RANK', 'LOCAL_RANK', 'MMTURBOX')
    }
    return subprocess.run([sys.executable, '-m', 'mmturbox.run', *args],
                          env={**clean, **environ},
                          capture_output=True,
                          text=True,
                          timeout=200)


def test_script_and_its_spawned_children_have_mmcv_ops(tmp_path):
    (tmp_path / 'neighbour.py').touch()
    script = tmp_path / 'script.py'
    script.write_text(SCRIPT)
    done = run(
        str(script),
        '--launcher=slurm',
        '-x',
        SLURM_PROCID='3',
        SLURM_LOCALID='1')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "mmcv.ops.nms ['--launcher=slurm', '-x'] 1 3 neighbour")


def test_exit_status_and_errors_are_the_scripts(tmp_path):
    script = tmp_path / 'script.py'
    script.write_text('import sys\nsys.exit(7)\n')
    assert run(str(script)).returncode == 7


def test_missing_script_is_named():
    done = run('no_script.py')
    assert done.returncode == 1
    assert "there is no script 'no_script.py'" in done.stderr


def test_mmdet3ds_own_train_script_trains_turbo(tmp_path):
    spec = find_spec('mmdet3d')
    if spec is None:
        pytest.skip('mmdet3d is not installed')
    script = Path(spec.origin).parent / '.mim' / 'tools' / 'train.py'
    done = run(
        str(script),
        str(TOY / 'toy_config.py'),
        '--work-dir',
        str(tmp_path),
        PYTHONPATH=str(TOY))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / 'rank0.json').read_text())
    assert report['runner'] == 'TurboRunner'
    assert (tmp_path / 'turbo_plan.json').is_file()
