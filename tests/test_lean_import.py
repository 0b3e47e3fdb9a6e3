"""Importing mmturbox costs next to nothing and changes nothing."""

import statistics
import subprocess
import sys

BUDGET_MS = 50

MEASURE = '''
import os, sys, time
environ, before = dict(os.environ), set(sys.modules)
start = time.perf_counter()
import mmturbox
spent = time.perf_counter() - start
heavy = {'torch', 'cv2', 'mmcv', 'mmengine', 'numpy'} & set(sys.modules)
assert not heavy - before, heavy
assert dict(os.environ) == environ
print(1e3 * spent)
'''

# A process in which nothing of setuptools can be found (KF-E4).
WITHOUT_SETUPTOOLS = '''
import sys
for name in list(sys.modules):
    if name.split('.')[0] in ('setuptools', '_distutils_hack'):
        del sys.modules[name]
for name in ('setuptools', 'pkg_resources', '_distutils_hack', 'distutils',
             'imp'):
    sys.modules[name] = None
import mmturbox.ops, mmturbox.enable, mmturbox.info
from mmturbox.passes.driver import all_passes
all_passes()
'''


def run(code):
    return subprocess.run([sys.executable, '-c', code],
                          capture_output=True,
                          text=True,
                          timeout=120)


def test_import_is_light_and_within_the_budget():
    spent = []
    for _ in range(5):
        done = run(MEASURE)
        assert done.returncode == 0, done.stderr
        spent.append(float(done.stdout))
    assert statistics.median(spent) <= BUDGET_MS


def test_everything_imports_without_setuptools():
    done = run(WITHOUT_SETUPTOOLS)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_no_component_is_an_attribute_error():
    done = run('import mmturbox\n'
               'assert not hasattr(mmturbox, "nothing")\n'
               'assert not hasattr(mmturbox, "NoSuchComponent")\n'
               'print(mmturbox.TurboRunner.__name__)')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == 'TurboRunner'
