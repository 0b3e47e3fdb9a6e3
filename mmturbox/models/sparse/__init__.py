"""Sparse convolution layers with the interface of mmcv and spconv.

``tensor.py`` holds rows and what is known about their geometry,
``geometry.py`` finds rulebooks once and shares them, ``convolution.py`` and
``pool.py`` are the layers, ``sequential.py`` the container that fuses
convolution, normalization and ReLU, ``convert.py`` puts the layers in the
place of stock ones in a built model.
"""

from .convert import convert_sparse
from .convolution import (
    SparseConv2d,
    SparseConv3d,
    SparseConvolution,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SubMConv2d,
    SubMConv3d,
)
from .pool import SparseMaxPool2d, SparseMaxPool3d
from .sequential import SparseModule, SparseSequential, ToDense
from .tensor import SparseConvTensor

__all__ = [
    'SparseConv2d', 'SparseConv3d', 'SparseConvTensor',
    'SparseConvTranspose2d', 'SparseConvTranspose3d', 'SparseConvolution',
    'SparseInverseConv2d', 'SparseInverseConv3d', 'SparseMaxPool2d',
    'SparseMaxPool3d', 'SparseModule', 'SparseSequential', 'SubMConv2d',
    'SubMConv3d', 'ToDense', 'convert_sparse'
]
