"""A file is complete under its name or absent, and errors say what to do."""

import errno
from collections import namedtuple

import pytest

from mmturbox.datasets import DataError
from mmturbox.datasets import files as module
from mmturbox.datasets.files import check_space, complete_file, explained


def test_file_appears_whole_with_its_folder(tmp_path):
    path = tmp_path / 'new' / 'x.bin'
    with complete_file(path) as file:
        file.write(b'abc')
        assert not path.exists()
    assert path.read_bytes() == b'abc'
    assert [p.name for p in path.parent.iterdir()] == ['x.bin']


def test_failed_write_keeps_the_old_file_and_leaves_no_part(tmp_path):
    path = tmp_path / 'x.txt'
    path.write_text('old')
    with pytest.raises(KeyError), complete_file(path, 'w') as file:
        file.write('half of the new')
        raise KeyError
    assert path.read_text() == 'old'
    assert [p.name for p in tmp_path.iterdir()] == ['x.txt']


@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_names_file_need_and_remedy(tmp_path, code):
    path = tmp_path / 'x.bin'
    with pytest.raises(DataError) as error, complete_file(path, needed=1500):
        raise OSError(code, 'full')
    text = str(error.value)
    assert str(path) in text and 'it takes 2 KB' in text
    assert 'are free' in text and 'run the same command again' in text
    assert not list(tmp_path.iterdir())


def test_what_cannot_fit_is_refused_before_writing(tmp_path, monkeypatch):
    usage = namedtuple('usage', 'total used free')(10, 8, 2)
    monkeypatch.setattr(module.shutil, 'disk_usage', lambda path: usage)
    check_space(tmp_path / 'deep' / 'x', 2)
    with pytest.raises(DataError, match='takes 3 bytes, 2 bytes are free'):
        check_space(tmp_path / 'deep' / 'x', 3)
    with pytest.raises(DataError), complete_file(tmp_path / 'x', needed=3):
        raise AssertionError('opened')


@pytest.mark.parametrize('code', [errno.EACCES, errno.EROFS])
def test_missing_rights_name_the_file(tmp_path, code):
    with pytest.raises(DataError, match='cannot write .*x.bin.*choose'), \
            explained(tmp_path / 'x.bin'):
        raise OSError(code, 'no')


@pytest.mark.parametrize('inner', ['', 'deep', 'deep/deeper'])
def test_file_where_a_folder_is_due_is_named(tmp_path, inner):
    path = tmp_path / 'file'
    path.touch()
    with pytest.raises(DataError, match=f': {path} is no folder; choose'), \
            complete_file(path / inner / 'x.bin'):
        raise AssertionError('opened')


def test_other_errors_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError), explained(tmp_path):
        raise FileNotFoundError(errno.ENOENT, 'x')
