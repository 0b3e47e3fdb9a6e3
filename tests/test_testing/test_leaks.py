"""The leak fixtures notice what a test leaves behind, and clean up."""

import subprocess
import sys

LEAKY = '''
import multiprocessing, os, threading, time

def test_sets_a_variable():
    os.environ['MMTURBOX_LEAK'] = '1'
    os.environ['HOME'] = '/nowhere'

def test_the_variable_is_gone():
    assert 'MMTURBOX_LEAK' not in os.environ
    assert os.environ['HOME'] != '/nowhere'

def test_leaves_a_child():
    multiprocessing.Process(target=time.sleep, args=(60,)).start()

def test_the_child_is_gone():
    assert not multiprocessing.active_children()
'''


def test_leaks_fail_the_test_that_made_them(tmp_path):
    (tmp_path / 'conftest.py').write_text(
        'from mmturbox.testing.leaks import *\n')
    (tmp_path / 'test_leaky.py').write_text(LEAKY)
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', '-rA', '.'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120)
    assert 'ERROR test_leaky.py::test_leaves_a_child' in done.stdout
    assert 'leaves behind: child process' in done.stdout
    assert '4 passed, 1 error' in done.stdout
