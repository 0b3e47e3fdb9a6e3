"""mmcv's calls for sparse convolution, on the tables of our operators.

Output rows come in sorted order, where mmcv's come as its hash table had
them; features belong to the same coordinates.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..indice_pairs import indice_pairs, tables_from_pairs
from ..sparse_conv import sparse_conv
from ..sparse_pool import sparse_max_pool
from ..sparse_rulebook import SparseTables, sparse_rulebook
from ._provided import provides


def _forward(indices: Tensor, batchSize: int, outSpatialShape: Sequence[int],
             spatialShape: Sequence[int], kernelSize: Sequence[int],
             stride: Sequence[int], padding: Sequence[int],
             dilation: Sequence[int], outPadding: Sequence[int], _subM: int,
             _transpose: int) -> list[Tensor]:
    kind = 'subm' if _subM else 'transposed' if _transpose else 'conv'
    rulebook = sparse_rulebook(indices.int(), batchSize, tuple(spatialShape),
                               kernelSize, stride, padding, dilation, kind,
                               outPadding if _transpose else 0)
    if list(rulebook.spatial_shape) != list(outSpatialShape):
        raise ValueError(
            f'the output shape {list(outSpatialShape)} does not follow from '
            f'the input shape {list(spatialShape)} and the kernel, which give '
            f'{list(rulebook.spatial_shape)}')
    return [rulebook.coords, *indice_pairs(rulebook.tables)]


def _backward(indices: Tensor, gridOut: Tensor, batchSize: int,
              outSpatialShape: Sequence[int], spatialShape: Sequence[int],
              kernelSize: Sequence[int], stride: Sequence[int],
              padding: Sequence[int], dilation: Sequence[int],
              outPadding: Sequence[int], _subM: int,
              _transpose: int) -> list[Tensor]:
    """mmcv numbers the outputs in the dense buffer ``gridOut``; our keys
    need none."""
    return _forward(indices, batchSize, outSpatialShape, spatialShape,
                    kernelSize, stride, padding, dilation, outPadding, _subM,
                    _transpose)


def _provide(name: str, function: Callable) -> None:

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    provides(call)


for _dims in ('2d', '3d', '4d'):
    _provide(f'get_indice_pairs_{_dims}_forward', _forward)
for _dims in ('2d', '3d'):
    _provide(f'get_indice_pairs_{_dims}_backward', _backward)


def _tables(pairs: Tensor, num: Tensor, rows: int, out_rows: int,
            inverse: int) -> SparseTables:
    """Tables from ``rows`` features to ``out_rows`` outputs."""
    if inverse:
        return tables_from_pairs(pairs, num, out_rows, rows).inverse()
    return tables_from_pairs(pairs, num, rows, out_rows)


def _taps(filters: Tensor) -> Tensor:
    """(*kernel, C_in, C_out) -> (K, C_in, C_out)."""
    return filters.reshape(math.prod(filters.shape[:-2]), *filters.shape[-2:])


@provides
def indice_conv_forward(features: Tensor, filters: Tensor,
                        indicePairs: Tensor, indiceNum: Tensor,
                        numActOut: int, _inverse: int, _subM: int) -> Tensor:
    tables = _tables(indicePairs, indiceNum, len(features), numActOut,
                     _inverse)
    return sparse_conv(features, _taps(filters), tables)


@provides
def fused_indice_conv_forward(features: Tensor, filters: Tensor,
                              bias: Tensor, indicePairs: Tensor,
                              indiceNum: Tensor, numActOut: int,
                              _inverse: int, _subM: int) -> Tensor:
    tables = _tables(indicePairs, indiceNum, len(features), numActOut,
                     _inverse)
    return sparse_conv(features, _taps(filters), tables, bias)


@provides
def indice_conv_backward(features: Tensor, filters: Tensor, outGrad: Tensor,
                         indicePairs: Tensor, indiceNum: Tensor,
                         _inverse: int, _subM: int) -> list[Tensor]:
    tables = _tables(indicePairs, indiceNum, len(features), len(outGrad),
                     _inverse)
    with torch.enable_grad():
        inputs = (features.detach().requires_grad_(),
                  filters.detach().requires_grad_())
        out = sparse_conv(inputs[0], _taps(inputs[1]), tables)
    return list(torch.autograd.grad(out, inputs, outGrad))


@provides
def indice_maxpool_forward(features: Tensor, indicePairs: Tensor,
                           indiceNum: Tensor, numAct: int) -> Tensor:
    """mmcv's maximum starts at zero."""
    tables = tables_from_pairs(indicePairs, indiceNum, len(features), numAct)
    return sparse_max_pool(features, tables).clamp_(min=0)


@provides
def indice_maxpool_backward(features: Tensor, outFeatures: Tensor,
                            outGrad: Tensor, indicePairs: Tensor,
                            indiceNum: Tensor) -> Tensor:
    tables = tables_from_pairs(indicePairs, indiceNum, len(features),
                               len(outFeatures))
    return torch.ops.mmturbox.sparse_max_pool_grad(
        features, outFeatures, outGrad.contiguous(), tables.transposed)
