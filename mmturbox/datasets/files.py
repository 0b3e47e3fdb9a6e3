"""Files that are complete under their name or not there at all."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .info_check import DataError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)


@contextmanager
def complete_file(path: str | os.PathLike,
                  mode: str = 'wb',
                  needed: int = 0) -> Iterator[IO]:
    """Open a file for writing that takes its name when it is whole.

    It is written as ``{path}.partial-{pid}`` in the same folder, flushed to
    the disk and renamed; on any error the part is removed and what was there
    under ``path`` before stays. The folder is made if need be.

    Args:
        path: the file.
        mode: of ``open``.
        needed: bytes that will be written, where known, to refuse at once
            what cannot fit.

    Raises:
        DataError: no space or no right to write; names the file and the
            remedy.
    """
    path = Path(path)
    partial = path.with_name(f'{path.name}.partial-{os.getpid()}')
    with explained(path, needed):
        path.parent.mkdir(parents=True, exist_ok=True)
        check_space(path, needed)
        try:
            with open(partial, mode) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def check_space(path: str | os.PathLike, needed: int) -> None:
    """Raise DataError unless ``needed`` bytes are free where ``path`` is."""
    if needed > _free(Path(path)):
        raise DataError(_full_text(Path(path), needed))


@contextmanager
def explained(path: str | os.PathLike, needed: int = 0) -> Iterator[None]:
    """Turn a full disk, missing rights and a file where a folder is due into
    an error that says what to do.

    Args:
        path: the file or folder that is being written.
        needed: bytes it takes in all, where known.

    Raises:
        DataError: in place of the ``OSError``.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DataError(_full_text(Path(path), needed)) from error
        if error.errno in _FORBIDDEN:
            raise DataError(
                f'cannot write {path} ({error.strerror}); choose a folder '
                'that you may write to, or change its rights') from error
        found = _existing(Path(path))
        if error.errno in _NO_FOLDER and not found.is_dir():
            raise DataError(f'cannot write {path}: {found} is no folder; '
                            'choose another folder') from error
        raise


def _free(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


def _existing(path: Path) -> Path:
    """The path itself or the nearest above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _full_text(path: Path, needed: int) -> str:
    takes = f'it takes {_size(needed)}, ' if needed else ''
    return (f'no space left to write {path}: {takes}{_size(_free(path))} are '
            'free; make room or choose a folder on another disk, and run the '
            'same command again')


def _size(count: int) -> str:
    size = float(count)
    for unit in ('bytes', 'KB', 'MB'):
        if size < 1000:
            return f'{size:.0f} {unit}'
        size /= 1000
    return f'{size:.1f} GB'
