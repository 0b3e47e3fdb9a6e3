"""An info file put together from pickled parts without reading them.

Info files hold hundreds of thousands of small objects, so that loading the
parts and dumping them again in one process would undo what several processes
gained. In protocol 3 a pickled list is its opening, then batches that extend
the list on top of the stack, then STOP; and memo slots are numbered
explicitly and may be filled again. So the batches of many lists can follow
each other after one opening: joining is copying bytes.
"""

import os
import pickle
import shutil
from collections.abc import Sequence

from .files import complete_file

_PROTOCOL = 3
# PROTO 3, EMPTY_LIST, BINPUT 0, ..., STOP
_OPENING = b'\x80\x03]q\x00'
_STOP = b'.'


def write_part(path: str | os.PathLike, records: list) -> None:
    """Write a list so that :func:`join_parts` can use it (a plain pickle)."""
    data = pickle.dumps(records, _PROTOCOL)
    with complete_file(path, needed=len(data)) as file:
        file.write(data)


def join_parts(path: str | os.PathLike, metainfo: dict,
               parts: Sequence[str | os.PathLike]) -> None:
    """Write the pickle of ``dict(metainfo=metainfo, data_list=all parts)``.

    Args:
        path: the info file.
        metainfo: comes first in the file.
        parts: files of :func:`write_part`, in order.
    """
    needed = sum(os.path.getsize(part) for part in parts)
    head = pickle.dumps(metainfo, _PROTOCOL)[2:-1]
    with complete_file(path, needed=needed) as file:
        # PROTO 3, EMPTY_DICT, MARK, key, value, key, list, SETITEMS, STOP
        file.write(b'\x80\x03}(' + _text('metainfo') + head +
                   _text('data_list') + b']')
        for part in parts:
            with open(part, 'rb') as source:
                if source.read(len(_OPENING)) != _OPENING:
                    raise ValueError(f'{part} is no part of an info file')
                shutil.copyfileobj(source, file, 1 << 20)
            # The next part, or the end, takes the place of STOP.
            file.seek(-len(_STOP), os.SEEK_CUR)
        file.write(b'u' + _STOP)


def _text(text: str) -> bytes:
    data = text.encode()
    return b'X' + len(data).to_bytes(4, 'little') + data
