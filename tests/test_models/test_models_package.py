"""Twins are found by name; without mmdet3d they say so when built."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules['mmdet3d'] = None
import mmturbox
from mmturbox.registry import MODELS, find_component
assert find_component('NoSuchThing') is None
for name in {names}:
    assert find_component(name) is not None, name
    try:
        MODELS.build(dict(type='mmturbox.' + name))
    except ImportError as error:
        assert 'mmdet3d' in str(error) and name in str(error), error
    else:
        raise AssertionError(name)
print('named')
"""
WITH = """
import mmturbox
from mmengine.registry import MODELS
import mmturbox.registry
for name in {names}:
    twin = MODELS.get('mmturbox.' + name)
    assert twin is getattr(mmturbox, name)
    import mmdet3d.registry
    stock = mmdet3d.registry.MODELS
    stock = stock.get(name) or stock.get('mmdet.' + name)
    assert issubclass(twin, stock), name
print('found')
"""


def run(code):
    from mmturbox.models import TWINS
    return subprocess.run(
        [sys.executable, '-c', code.format(names=list(TWINS))],
        capture_output=True, text=True, timeout=300)


def test_twins_extend_the_class_of_their_name():
    done = run(WITH)
    assert 'found' in done.stdout, done.stderr


def test_without_mmdet3d_the_error_names_it_when_a_twin_is_built():
    done = run(WITHOUT)
    assert 'named' in done.stdout, done.stderr
