"""Log scalars that stay on the device until somebody looks at them.

MMEngine reads every loss key in every iteration (``.item()``), and copies
the whole history of each key to append one number. Here an iteration leaves
one small tensor behind, and the first look at any value, whenever it comes,
reads all pending ones together. The numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, MessageHub
from torch import Tensor

# At this many unread tensors they are read, so that memory stays bounded.
MAX_PENDING = 1000


class _Series:
    """A growing array: ``np.append`` in amortised constant time.

    Positions are absolute: that of the first value ever appended is 0, and
    values dropped from the front keep theirs.
    """

    def __init__(self, values: np.ndarray):
        self._array = values
        self._start, self._stop = 0, len(values)
        self._base = 0

    def __len__(self) -> int:
        return self._stop - self._start

    def view(self) -> np.ndarray:
        return self._array[self._start:self._stop]

    def append(self, value: Any, dtype: np.dtype) -> int:
        """Append; the array becomes of the common type. Returns the place."""
        if self._array.dtype != dtype:
            common = np.result_type(self._array.dtype, dtype)
            self._array = self._array.astype(common, copy=False)
        if self._stop == len(self._array):
            live = self.view()
            self._array = np.empty(max(16, 2 * len(live)), live.dtype)
            self._array[:len(live)] = live
            self._base += self._start
            self._start, self._stop = 0, len(live)
        self._array[self._stop] = value
        self._stop += 1
        return self._base + self._stop - 1

    def keep_last(self, length: int) -> None:
        self._start = max(self._start, self._stop - length)

    def fill(self, place: int, value: Any) -> None:
        index = place - self._base
        if index >= self._start:
            self._array[index] = value


# The dtypes of the arrays numpy makes of a number, or of ``tensor.item()``.
_INT, _FLOAT, _BOOL = (np.dtype(t) for t in (np.int64, np.float64, bool))
_NUMBERS = {int: _INT, float: _FLOAT, bool: _BOOL}
_ITEMS = {
    torch.bool: _BOOL,
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32,
                     torch.int64), _INT),
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32,
                     torch.float64), _FLOAT)
}


def _number_dtype(value: int | float) -> np.dtype:
    return _NUMBERS.get(type(value)) or np.asarray(value).dtype


class DeferredHistoryBuffer(HistoryBuffer):
    """A HistoryBuffer some of whose values may still be on the device.

    Every access, also that of statistics registered by users, sees what the
    stock buffer would hold. Copies and pickles are stock buffers.
    """

    _OWN = ('_logs', '_counts', '_pending', '_unread')

    @classmethod
    def adopt(cls, buffer: HistoryBuffer, pending: PendingScalars) -> None:
        """Turn a stock buffer, which others may hold, into one of these."""
        logs, counts = buffer.data
        for name in ('_log_history', '_count_history'):
            del buffer.__dict__[name]
        buffer.__class__ = cls
        buffer._logs, buffer._counts = _Series(logs), _Series(counts)
        buffer._pending, buffer._unread = pending, 0

    @classmethod
    def create(cls, dtype: np.dtype,
               pending: PendingScalars) -> DeferredHistoryBuffer:
        buffer = HistoryBuffer()
        buffer._log_history = np.empty(0, dtype)
        buffer._count_history = np.empty(0, np.int64)
        cls.adopt(buffer, pending)
        return buffer

    @property
    def _log_history(self) -> np.ndarray:
        if self._unread:
            self._pending.read()
        return self._logs.view()

    @_log_history.setter
    def _log_history(self, values: np.ndarray) -> None:
        if self._unread:
            self._pending.read()
        self._logs = _Series(values)

    @property
    def _count_history(self) -> np.ndarray:
        return self._counts.view()

    @_count_history.setter
    def _count_history(self, values: np.ndarray) -> None:
        self._counts = _Series(values)

    def update(self, log_val: int | float, count: int = 1) -> None:
        if not (isinstance(log_val, (int, float))
                and isinstance(count, (int, float))):
            raise TypeError('a history takes int or float, got log_val '
                            f'{type(log_val)} and count {type(count)}')
        self._append(log_val, _number_dtype(log_val), count)

    def reserve(self, dtype: np.dtype) -> int:
        """Make room for a value that is read later."""
        place = self._append(0, dtype, 1)
        self._unread += 1
        return place

    def _append(self, value: Any, dtype: np.dtype, count: float) -> int:
        place = self._logs.append(value, dtype)
        self._counts.append(count, _number_dtype(count))
        if len(self._logs) > self.max_length:
            self._logs.keep_last(self.max_length)
            self._counts.keep_last(self.max_length)
        return place

    def fill(self, place: int, value: float) -> None:
        self._logs.fill(place, value)
        self._unread -= 1

    def __getstate__(self) -> dict:
        state = {k: v for k, v in self.__dict__.items() if k not in self._OWN}
        return dict(
            state,
            _log_history=self._log_history,
            _count_history=self._count_history,
            statistics_methods=self._statistics_methods)

    def __reduce__(self) -> tuple:
        return HistoryBuffer, (), self.__getstate__()


class PendingScalars:
    """What one message hub has not read yet."""

    def __init__(self):
        self._items: list[tuple[Tensor, list, Callable | None]] = []

    def add(self,
            values: Tensor,
            places: list[tuple[DeferredHistoryBuffer, int]],
            on_read: Callable[[list], None] | None = None) -> None:
        self._items.append((values, places, on_read))
        if len(self._items) > MAX_PENDING:
            self.read()

    def read(self) -> None:
        """Fetch all pending values: one read for each device and kind."""
        groups: dict[tuple, list] = {}
        for item in self._items:
            kind = item[0].device, item[0].is_floating_point()
            groups.setdefault(kind, []).append(item)
        # Promotion within floats, or within integers, is exact.
        values = [
            torch.cat([tensor.reshape(-1) for tensor, _, _ in group]).tolist()
            for group in groups.values()
        ]
        self._items = []
        for group, numbers in zip(groups.values(), values, strict=True):
            start = 0
            for _, places, on_read in group:
                own = numbers[start:start + len(places)]
                start += len(places)
                for (buffer, place), value in zip(places, own, strict=True):
                    buffer.fill(place, value)
                if on_read is not None:
                    on_read(own)


_PENDING: WeakKeyDictionary[MessageHub, PendingScalars] = WeakKeyDictionary()


def pending_of(hub: MessageHub) -> PendingScalars:
    if hub not in _PENDING:
        _PENDING[hub] = PendingScalars()
    return _PENDING[hub]


def adopt_buffers(hub: MessageHub) -> None:
    """Make all stock buffers of ``hub`` (new or resumed) deferring ones."""
    pending = pending_of(hub)
    for buffer in hub.log_scalars.values():
        if type(buffer) is HistoryBuffer:
            DeferredHistoryBuffer.adopt(buffer, pending)


def _reserve(hub: MessageHub, pending: PendingScalars, key: str,
             value: Any) -> tuple[DeferredHistoryBuffer, int] | None:
    """A place for ``value``, or None where it must go the stock way."""
    if (not isinstance(value, Tensor) or value.numel() != 1
            or value.layout != torch.strided):
        return None
    dtype = _ITEMS.get(value.dtype)
    if dtype is None:
        return None
    buffer = hub.log_scalars.get(key)
    if buffer is None:
        buffer = DeferredHistoryBuffer.create(dtype, pending)
    elif type(buffer) is HistoryBuffer:
        DeferredHistoryBuffer.adopt(buffer, pending)
    elif not isinstance(buffer, DeferredHistoryBuffer):
        return None
    hub._set_resumed_keys(key, True)
    hub.log_scalars[key] = buffer
    return buffer, buffer.reserve(dtype)


@torch.no_grad()
def defer_scalars(hub: MessageHub, values: Mapping[str, Any]) -> None:
    """``hub.update_scalar(key, value)`` for all, without reading tensors.

    The tensors are copied (one launch for each dtype), so they may be views,
    or be written to later.
    """
    pending = pending_of(hub)
    groups: dict[tuple, tuple[list, list]] = {}
    for key, value in values.items():
        place = _reserve(hub, pending, key, value)
        if place is None:
            hub.update_scalar(key, value)
            continue
        tensors, places = groups.setdefault((value.device, value.dtype),
                                            ([], []))
        tensors.append(value if value.dim() == 0 else value.reshape(()))
        places.append(place)
    for tensors, places in groups.values():
        pending.add(torch.stack(tensors), places)


def defer_scalar(hub: MessageHub,
                 key: str,
                 value: Tensor,
                 on_read: Callable[[list], None] | None = None) -> None:
    """The same for one tensor that nobody writes to any more (no copy).

    Args:
        on_read: called with ``[value]`` when it has been read.
    """
    pending = pending_of(hub)
    place = _reserve(hub, pending, key, value)
    if place is None:
        hub.update_scalar(key, value)
    else:
        pending.add(value.detach(), [place], on_read)
