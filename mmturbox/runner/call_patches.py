"""Makers of replacements for stock functions: each takes the stock function
and returns what stands in its place (``runner/calls.py``)."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def inverse(stock: Callable) -> Callable:
    """Inverse of matrices up to 4 x 4 without the device's error check.

    A singular matrix raises as in stock on the CPU, where looking costs
    nothing; on a device it gives inf or NaN.
    """
    from mmturbox.ops import small_inverse

    @functools.wraps(stock)
    def small(matrix: Any = None, *args, **kwargs):
        matrix = kwargs.pop('input', kwargs.pop('A', matrix))
        fits = (isinstance(matrix, Tensor) and not args and not kwargs
                and matrix.dtype in (torch.float32, torch.float64)
                and matrix.dim() >= 2 and 2 <= matrix.shape[-1] <= 4
                and matrix.shape[-2] == matrix.shape[-1])
        if fits:
            result = small_inverse(matrix)
            if not matrix.is_cpu or bool(result.isfinite().all()):
                return result
        return stock(matrix, *args, **kwargs)

    return small
