"""Rows of different length in one array."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: (V, ...) all rows one after the other.
        offsets: (R + 1,) int64, from 0 to V.
    """
    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def pack(cls, rows: Sequence[Sequence], width: tuple[int, ...],
             dtype: np.dtype | type) -> 'Ragged':
        """One array from rows of elements of shape ``width``."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        flat = [element for row in rows for element in row]
        values = np.array(flat, dtype=dtype).reshape(-1, *width)
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """Row ``index`` (negative ones are counted from the end)."""
        index = range(len(self))[index]
        return self.values[self.offsets[index]:self.offsets[index + 1]]
