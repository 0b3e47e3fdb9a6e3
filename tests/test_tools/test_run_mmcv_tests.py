"""mmcv's own tests on our operators, with a small checkout in their place."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / 'tools' / 'run_mmcv_tests.py'
pytestmark = pytest.mark.skipif(
    find_spec('mmcv') is None, reason='mmcv not installed')

GOOD = """
import pytest, torch
from mmcv.ops import nms
from mmcv.utils import IS_CUDA_AVAILABLE

@pytest.mark.skipif(not IS_CUDA_AVAILABLE, reason='requires CUDA')
def test_nms():
    boxes = torch.tensor([[0., 0, 2, 2], [0, 0, 2, 2]]).cuda()
    scores = torch.tensor([1., 0.5], device='cuda:0')
    assert nms(boxes, scores, 0.5)[1].tolist() == [0]

def test_reads_files_of_the_checkout():
    assert open('tests/data/file.txt').read() == 'text'

@pytest.mark.skip(reason='needs another device')
def test_other():
    pass
"""
BAD = """
def test_missing():
    import mmcv._ext
    mmcv._ext.upfirdn2d()

def test_wrong():
    assert 'apples' == 'pears'
"""
CRASH = 'def test_crash():\n    import os\n    os._exit(3)\n'


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / 'tests/test_ops').mkdir(parents=True)
    (tmp_path / 'tests/data').mkdir()
    (tmp_path / 'tests/data/file.txt').write_text('text')
    for name, text in dict(good=GOOD, bad=BAD, crash=CRASH, broken='1 / 0',
                           onnx=BAD).items():
        (tmp_path / f'tests/test_ops/test_{name}.py').write_text(text)
    return tmp_path


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *map(str, arguments)],
                          capture_output=True, text=True, timeout=300,
                          env=os.environ | {'PYTHONDONTWRITEBYTECODE': ''})


def test_table_and_file_tell_what_passed_and_why_not(checkout):
    """KF-E3: a function that is not provided is named."""
    file = checkout / 'results.json'
    done = run(checkout, '--json', file)
    assert done.returncode == 1, done.stderr
    rows = {words[0]: words[1:4] for words in map(
        str.split, done.stdout.splitlines()) if 4 <= len(words) <= 5}
    assert rows['good'] == ['2', '1', '0']
    assert rows['bad'] == ['0', '0', '2']
    assert rows['crash'] == rows['broken'] == ['0', '0', '1']
    assert rows['all'] == ['2', '1', '4']
    assert 'onnx' not in rows
    assert '1 Skipped: needs another device' in done.stdout
    assert 'exit code 3' in done.stdout
    assert "'apples' == 'pears'" in done.stdout
    assert 'failed test_broken.py: ' in done.stdout
    assert 'division by zero' in done.stdout
    found = json.loads(file.read_text())
    assert ['test_good.py::test_nms', 'passed', ''] in found['results']['good']
    reason = dict(row[::2] for row in found['results']['bad'])
    assert 'upfirdn2d' in reason['test_bad.py::test_missing']
    assert 'nms' in found['provided']
    assert 'upfirdn2d' in found['not_provided']
    assert not list(checkout.rglob('*cache*')), 'the checkout stays clean'


def test_names_pick_files_and_are_checked(checkout):
    done = run(checkout, 'good')
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'crash' not in done.stdout
    done = run(checkout, 'goood')
    assert done.returncode == 2 and 'goood' in done.stderr
