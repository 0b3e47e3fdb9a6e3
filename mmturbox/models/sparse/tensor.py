"""Rows of a sparse grid."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmturbox.ops import sparse_to_dense


class SparseConvTensor:
    """Features at some cells of a grid; interface of mmcv's and spconv's.

    Args:
        features: (N, C) of any floating dtype.
        indices: (N, 1 + ndim) integers, rows ``batch, z, y, x``.
        spatial_shape: ndim sizes.
        batch_size: number of samples.
        grid: accepted for compatibility; our rulebooks need no dense buffer.
        unique: no two rows of ``indices`` are equal. Saves work on CUDA,
            where finding out would wait for the device; wrong gradients if
            it does not hold. Found out on the CPU.

    Attributes:
        indice_dict: what is known about the geometry, shared by all tensors
            that come of this one.
    """

    def __init__(self,
                 features: Tensor,
                 indices: Tensor,
                 spatial_shape: Sequence[int],
                 batch_size: int,
                 grid: Any = None,
                 unique: bool = False):
        self.features = features
        self.indices = (indices if indices.dtype == torch.int32 else
                        indices.int())
        self.spatial_shape = [int(size) for size in spatial_shape]
        self.batch_size = int(batch_size)
        self.grid = grid
        self.unique = unique
        self.indice_dict: dict = {}

    @classmethod
    def of(cls, other: Any) -> 'SparseConvTensor':
        """``other``, a tensor of ours, mmcv's or spconv's, as ours."""
        if isinstance(other, cls):
            return other
        if not hasattr(other, 'indices') or not hasattr(other, 'features'):
            raise TypeError('a sparse layer takes a SparseConvTensor, got '
                            f'{type(other).__name__}')
        return cls(other.features, other.indices, other.spatial_shape,
                   other.batch_size)

    def derive(self, features: Tensor, indices: Tensor,
               spatial_shape: Sequence[int]) -> 'SparseConvTensor':
        """A tensor that comes of this one and shares its geometry."""
        new = copy.copy(self)
        new.features, new.indices = features, indices
        new.spatial_shape = list(spatial_shape)
        return new

    def replace_feature(self, features: Tensor) -> 'SparseConvTensor':
        """The same rows with other features."""
        return self.derive(features, self.indices, self.spatial_shape)

    @property
    def spatial_size(self) -> int:
        return math.prod(self.spatial_shape)

    @property
    def sparity(self) -> float:
        """Share of occupied cells (the name is that of mmcv and spconv)."""
        return len(self.indices) / self.spatial_size / self.batch_size

    def find_indice_pair(self, key: str | None) -> Any:
        """What the layer with ``indice_key=key`` left here, or None."""
        return self.indice_dict.get(key)

    def dense(self, channels_first: bool = True) -> Tensor:
        """(B, C, *spatial_shape), zero where there is no row; with
        ``channels_first=False`` (B, *spatial_shape, C)."""
        out = sparse_to_dense(self.features, self.indices, self.batch_size,
                              self.spatial_shape)
        return out if channels_first else out.movedim(1, -1).contiguous()
