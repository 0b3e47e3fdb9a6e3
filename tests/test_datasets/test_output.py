"""A generated set appears whole, and replaces nothing it should not."""

import errno
import json
from pathlib import Path

import pytest

from mmturbox.datasets import DataError
from mmturbox.datasets.synthetic.output import write_once


def fill(root):
    (root / 'a').write_text('x')


def test_set_appears_with_its_parameters_and_once(tmp_path):
    out = tmp_path / 'new' / 'set'
    assert write_once(out, dict(seed=1), False, fill)
    assert json.loads((out / 'synthetic.json').read_text()) == dict(seed=1)
    assert (out / 'a').read_text() == 'x'
    assert [p.name for p in out.parent.iterdir()] == ['set']
    assert not write_once(out, dict(seed=1), True, lambda root: 1 / 0)


def test_other_parameters_need_overwrite(tmp_path):
    out = tmp_path / 'set'
    write_once(out, dict(seed=1), False, fill)
    (out / 'b').touch()
    with pytest.raises(ValueError, match='other parameters'):
        write_once(out, dict(seed=2), False, fill)
    assert (out / 'b').exists()
    assert write_once(out, dict(seed=2), True, fill)
    assert not (out / 'b').exists()


def test_anything_else_is_left_alone(tmp_path):
    (tmp_path / 'precious').touch()
    with pytest.raises(ValueError, match='no synthetic set'):
        write_once(tmp_path, dict(seed=1), True, fill)
    assert (tmp_path / 'precious').exists()


@pytest.mark.parametrize('error', [KeyboardInterrupt, ZeroDivisionError])
def test_interrupted_run_leaves_nothing_new(tmp_path, error):
    out = tmp_path / 'set'
    write_once(out, dict(seed=1), False, fill)

    def fail(root):
        fill(root)
        raise error

    with pytest.raises(error):
        write_once(out, dict(seed=2), True, fail)
    assert (out / 'a').exists()
    assert [p.name for p in tmp_path.iterdir()] == ['set']


def test_full_disk_says_what_to_do(tmp_path):

    def fail(root):
        raise OSError(errno.ENOSPC, 'full')

    with pytest.raises(DataError, match='no space left.*make room'):
        write_once(tmp_path / 'set', dict(seed=1), False, fail)
    assert not list(tmp_path.iterdir())


def test_old_set_stays_until_the_new_one_is_there(tmp_path, monkeypatch):
    out = tmp_path / 'set'
    write_once(out, dict(seed=1), False, fill)
    rename = Path.rename

    def fail(self, target):
        if self.name.endswith('.partial'):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, 'rename', fail)
    with pytest.raises(KeyboardInterrupt):
        write_once(out, dict(seed=2), True, fill)
    assert json.loads((out / 'synthetic.json').read_text()) == dict(seed=1)
    assert (out / 'a').read_text() == 'x'
    assert [p.name for p in tmp_path.iterdir()] == ['set']


def test_what_a_killed_run_left_goes(tmp_path):
    left = tmp_path / '.set.partial'
    left.mkdir()
    (left / 'half').touch()
    write_once(tmp_path / 'set', dict(seed=1), False, fill)
    assert [p.name for p in tmp_path.iterdir()] == ['set']
    assert not (tmp_path / 'set' / 'half').exists()


def test_two_runs_do_not_meet(tmp_path):

    def again(root):
        with pytest.raises(DataError, match='another run is writing'):
            write_once(tmp_path / 'set', dict(seed=1), False, fill)
        fill(root)

    assert write_once(tmp_path / 'set', dict(seed=1), False, again)


def test_places_that_cannot_be_replaced_are_named(tmp_path, monkeypatch):
    (tmp_path / 'file').touch()
    with pytest.raises(ValueError, match='is a file'):
        write_once(tmp_path / 'file' / 'set', dict(seed=1), False, fill)
    (tmp_path / 'disk').mkdir()
    monkeypatch.setattr('os.path.ismount', lambda path: path.name == 'disk')
    with pytest.raises(ValueError, match='folder below it'):
        write_once(tmp_path / 'disk', dict(seed=1), False, fill)


def test_a_link_is_followed(tmp_path):
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to(tmp_path / 'real')
    write_once(tmp_path / 'link', dict(seed=1), False, fill)
    assert (tmp_path / 'real' / 'a').exists()
    assert (tmp_path / 'link').is_symlink()


def test_a_broken_marker_is_no_match(tmp_path):
    out = tmp_path / 'set'
    write_once(out, dict(seed=1), False, fill)
    (out / 'synthetic.json').write_text('{')
    with pytest.raises(ValueError, match='unknown ones'):
        write_once(out, dict(seed=1), False, fill)
    assert write_once(out, dict(seed=1), True, fill)
