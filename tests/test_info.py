import subprocess
import sys

from mmturbox import info
from mmturbox.passes.driver import all_passes


def test_program_prints_versions_operators_and_every_pass(tmp_path):
    done = subprocess.run([sys.executable, '-m', 'mmturbox.info'],
                          cwd=tmp_path,
                          capture_output=True,
                          text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    words = done.stdout.split()
    import torch
    assert torch.__version__.split('+')[0] in done.stdout
    assert 'mmcv._ext' in words
    for name in all_passes():
        assert name in words


def test_passes_are_grouped_by_side_with_what_they_need():
    rows = info.passes()
    sides = [row[0] for row in rows]
    assert sides == sorted(sides, key=('system', 'data', 'model').index)
    by_name = {row[1]: row for row in rows}
    assert by_name['ddp'][3] == 'no, needs more than one process'
    assert by_name['optim_wrapper'][3] == 'yes'
    assert all(row[4] for row in rows)


def test_absent_packages_are_listed_as_such(monkeypatch):
    monkeypatch.setitem(info._VERSIONS, 'nothing', ('no-such-thing', ))
    monkeypatch.setitem(info._OPTIONAL, 'no-such-thing', 'testing')
    assert ('nothing', 'not installed') in info.versions()
    assert ('no-such-thing', 'not installed; for testing') in info.libraries()


def test_operators_say_why_a_backend_is_missing(monkeypatch):
    from mmturbox import ops
    monkeypatch.setitem(ops.MISSING, 'cpu', 'built for another torch')
    rows = dict(info.operators())
    assert rows['cpu'] == 'pure-torch references: built for another torch'
