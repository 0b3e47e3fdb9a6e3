"""Walking and comparing what data loaders and models return."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def leaves(value: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """(path, leaf) of nested dicts, lists, data elements and boxes."""
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif hasattr(value, 'all_items'):  # MMEngine's data elements
        items = value.all_items()
    elif isinstance(getattr(value, 'tensor', None), Tensor):  # boxes
        items = [('tensor', value.tensor)]
    else:
        yield path, value
        return
    for key, child in items:
        yield from leaves(child, f'{path}.{key}' if path else str(key))


def tensors(value: Any) -> list[Tensor]:
    return [v for _, v in leaves(value) if isinstance(v, Tensor)]


def to_array(value: Any) -> np.ndarray | None:
    """Numbers as a float64 or bool array; None for anything else."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        value = value.numpy()
    if isinstance(value, (bool, int, float, np.number, np.ndarray)):
        value = np.asarray(value)
        if value.dtype.kind in 'biuf':
            return value
    return None


def relative_gap(want: np.ndarray, got: np.ndarray,
                 floor: float = 0.) -> float:
    """Largest difference over the largest value (at least ``floor``).

    Equal infinities and NaNs in the same places do not differ; others, and
    other shapes, are infinitely apart.
    """
    if want.shape != got.shape:
        return float('inf')
    if want.size == 0 or np.array_equal(want, got, equal_nan=True):
        return 0.
    want, got = want.astype(np.float64), got.astype(np.float64)
    same = (want == got) | (np.isnan(want) & np.isnan(got))
    if not np.isfinite(want[~same]).all() or not np.isfinite(got[~same]).all():
        return float('inf')
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.)
    gap = np.abs(want[~same] - got[~same]).max()
    return float(gap / max(largest, floor, np.finfo(np.float64).tiny))


def compare_nested(want: Any, got: Any) -> list[tuple[str, float]]:
    """(path, gap) of every leaf of ``want``, inf where ``got`` lacks it.

    Leaves that are not numbers (names, classes) are compared by ``==``;
    leaves that only ``got`` has are no difference: a batch may carry more.
    """
    found = dict(leaves(got))
    gaps = []
    for path, value in leaves(want):
        if path not in found:
            gaps.append((path, float('inf')))
            continue
        array, other = to_array(value), to_array(found[path])
        if array is not None and other is not None:
            gap = relative_gap(array, other)
        elif type(value).__eq__ is object.__eq__:
            # Without a notion of equality: the same class has to do.
            gap = 0. if type(value) is type(found[path]) else float('inf')
        else:
            gap = 0. if value == found[path] else float('inf')
        gaps.append((path, gap))
    return gaps
