"""Tables of sparse convolutions as the indice pairs of mmcv, and back."""

import torch
from torch import Tensor

from .sparse_rulebook import SparseTables


def indice_pairs(tables: SparseTables) -> tuple[Tensor, Tensor]:
    """The pairs of rows that meet, a list for each tap.

    Args:
        tables: from :func:`sparse_rulebook`, K taps, N input rows.

    Returns:
        (K, 2, N) int32, for each tap first the input and then the output
        rows, by ascending input row, filled up with -1; and (K,) int32, the
        number of pairs of each tap.

    Note:
        Deterministic; no host synchronization. Equals what mmcv's
        ``get_indice_pairs_*`` return up to the order of pairs and of output
        rows.
    """
    reached = tables.transposed
    if reached is None:
        reached = tables.table.flip(0)
    valid = reached >= 0
    place = valid.cumsum(1)
    num = place[:, -1] if reached.shape[1] else place.sum(1)
    place = torch.where(valid, place - 1, reached.shape[1])
    pairs = reached.new_full(
        (reached.shape[0], 2, reached.shape[1] + 1), -1)
    rows = torch.arange(reached.shape[1], dtype=torch.int32,
                        device=reached.device).expand_as(reached)
    pairs[:, 0].scatter_(1, place, rows)
    pairs[:, 1].scatter_(1, place, reached)
    return pairs[:, :, :-1].contiguous(), num.int()


def _scatter(keys: Tensor, values: Tensor, valid: Tensor, size: int
             ) -> Tensor:
    """(K, size): the lowest value put at each key, or -1."""
    most = torch.iinfo(torch.int32).max
    out = values.new_full((values.shape[0], size + 1), most)
    out.scatter_reduce_(1, torch.where(valid, keys, size).long(),
                        torch.where(valid, values, most), 'amin')
    return torch.where(out == most, -1, out)[:, :size].contiguous()


def tables_from_pairs(pairs: Tensor, num: Tensor, num_in: int,
                      num_out: int) -> SparseTables:
    """Tables from indice pairs, for :func:`sparse_conv`.

    Args:
        pairs: (K, 2, P) int32 as :func:`indice_pairs` gives them.
        num: (K,) int32, the number of valid pairs of each tap.
        num_in: number of input rows.
        num_out: number of output rows.

    Returns:
        The tables. For an inverse convolution take ``inverse()`` of them.

    Note:
        Deterministic; no host synchronization. Of several input rows that
        reach one output row by one tap (equal coordinates) the table holds
        the lowest.
    """
    column = torch.arange(pairs.shape[2], device=pairs.device)
    valid = ((column < num[:, None]) & (pairs >= 0).all(1))
    return SparseTables(
        _scatter(pairs[:, 1], pairs[:, 0], valid, num_out),
        _scatter(pairs[:, 0], pairs[:, 1], valid, num_in))
