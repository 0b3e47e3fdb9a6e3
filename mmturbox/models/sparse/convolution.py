"""Sparse convolution layers.

Same constructor, parameters, initialisation and results as mmcv's; the
weights of mmcv (``*kernel, C_in, C_out``) and of spconv 2 (``C_out, *kernel,
C_in``) load both ways.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmturbox.ops import SparseSpec, SparseTables, sparse_conv
from mmturbox.registry import MODELS

from .geometry import Couple, find_rulebook
from .sequential import SparseModule
from .tensor import SparseConvTensor

Size = int | Sequence[int]


def _per_axis(value: Size, ndim: int) -> list[int]:
    return ([value] * ndim if isinstance(value, int) else
            [int(v) for v in value])


class SparseConvolution(SparseModule):
    """Base of the layers.

    Args:
        ndim: spatial dimensions.
        in_channels, out_channels: C_in, C_out.
        kernel_size, stride, padding, dilation, output_padding: an integer
            for all axes or one an axis.
        groups: 1, nothing else.
        bias: whether to add one.
        subm: submanifold: the output has the rows of the input.
        transposed, inverse: a transposed convolution; the inverse of the
            layer with the same ``indice_key``.
        indice_key: name under which an inverse layer finds this one.
            Rulebooks are shared without it too.
        fused_bn: accepted for compatibility; :class:`SparseSequential` fuses
            normalization by itself.
        spconv_layout: keep the weight as spconv 2 does.

    Raises:
        ValueError: groups, an even kernel of a submanifold layer, or stride
            and dilation above one on an axis.
    """

    def __init__(self,
                 ndim: int,
                 in_channels: int,
                 out_channels: int,
                 kernel_size: Size = 3,
                 stride: Size = 1,
                 padding: Size = 0,
                 dilation: Size = 1,
                 groups: int = 1,
                 bias: bool = True,
                 subm: bool = False,
                 output_padding: Size = 0,
                 transposed: bool = False,
                 inverse: bool = False,
                 indice_key: str | None = None,
                 fused_bn: bool = False,
                 spconv_layout: bool = False):
        super().__init__()
        if groups != 1:
            raise ValueError(f'groups must be 1, got {groups}')
        self.ndim = ndim
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _per_axis(kernel_size, ndim)
        self.stride = _per_axis(stride, ndim)
        self.padding = _per_axis(padding, ndim)
        self.dilation = _per_axis(dilation, ndim)
        self.output_padding = _per_axis(output_padding, ndim)
        if any(s > 1 and d > 1
               for s, d in zip(self.stride, self.dilation, strict=True)):
            raise ValueError('stride and dilation cannot both exceed one, got '
                             f'{self.stride} and {self.dilation}')
        self.groups = groups
        self.subm = subm
        self.transposed = transposed
        self.inverse = inverse
        self.conv1x1 = math.prod(self.kernel_size) == 1
        self.indice_key = indice_key
        self.fused_bn = fused_bn
        self.spconv_layout = spconv_layout
        kind = 'subm' if subm else 'transposed' if transposed else 'conv'
        # An inverse layer has the geometry of the layer that it undoes.
        self.spec = None if inverse else SparseSpec(
            self.kernel_size, self.stride, self.padding, self.dilation, kind,
            self.output_padding).per_axis(ndim)
        shape = (*self.kernel_size, in_channels, out_channels)
        if spconv_layout:
            shape = (out_channels, *self.kernel_size, in_channels)
        self.weight = nn.Parameter(torch.empty(shape))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_channels))
        else:
            self.register_parameter('bias', None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.in_channels * math.prod(self.kernel_size)
            bound = 1 / math.sqrt(fan_in) if fan_in else 0
            nn.init.uniform_(self.bias, -bound, bound)

    def taps(self) -> Tensor:
        """The weight as (K, C_in, C_out)."""
        weight = self.weight
        if self.spconv_layout:
            weight = weight.movedim(0, -1)
        return weight.reshape(-1, self.in_channels, self.out_channels)

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """Convolve.

        Raises:
            ValueError: an empty output shape, or an inverse layer without
                the layer that it undoes; the message names the layer.
        """
        return self.fused(x)

    def fused(self,
              x: SparseConvTensor,
              scale: Tensor | None = None,
              shift: Tensor | None = None,
              relu: bool = False) -> SparseConvTensor:
        """``relu(scale * conv(x) + shift)`` in one pass.

        Args:
            x: sparse tensor with C_in channels.
            scale, shift: (C_out,); the bias, if any, is scaled too.
            relu: whether to clamp at zero.
        """
        x = SparseConvTensor.of(x)
        bias = self.bias
        if scale is not None:
            bias = shift if bias is None else bias * scale + shift
            bias = bias.to(x.features.dtype)
        if self.conv1x1 and not self.inverse and self._pointwise():
            tables, indices, shape = None, x.indices, x.spatial_shape
        else:
            tables, indices, shape = self._geometry(x)
        if tables is None:
            weight = self.taps()[0]
            out = x.features @ (weight if scale is None else weight * scale)
            out = out if bias is None else out + bias
            out = out.relu() if relu else out
        else:
            out = sparse_conv(x.features, self.taps(), tables, bias, scale,
                              relu)
        return x.derive(out, indices, shape)

    def _pointwise(self) -> bool:
        """Whether a kernel of one tap leaves the rows as they are; mmcv
        takes that for granted."""
        return self.subm or (set(self.stride) == {1} and
                             set(self.padding) == {0} and not self.transposed)

    def _geometry(
            self,
            x: SparseConvTensor) -> tuple[SparseTables, Tensor, list[int]]:
        """Tables, output rows and output shape."""
        if self.inverse:
            couple = x.find_indice_pair(self.indice_key)
            if not isinstance(couple, Couple):
                raise ValueError(
                    f'{self} undoes the layer with indice_key='
                    f'{self.indice_key!r}, which did not run before it')
            if list(couple.spec.kernel) != self.kernel_size:
                raise ValueError(f'{self} must have the kernel of the layer '
                                 f'that it undoes, {couple.spec.kernel}')
            return (couple.rulebook.tables.inverse(), couple.indices,
                    couple.spatial_shape)
        try:
            self.spec.out_shape(x.spatial_shape)
            book = find_rulebook(x, self, self.spec)
        except ValueError as error:
            raise ValueError(f'{self}: {error}') from error
        if self.indice_key is not None:
            x.indice_dict.setdefault(
                self.indice_key,
                Couple(book, self.spec, x.indices, x.spatial_shape))
        return book.tables, book.coords, list(book.spatial_shape)

    def extra_repr(self) -> str:
        parts = [
            f'{self.in_channels}, {self.out_channels}',
            f'kernel_size={self.kernel_size}', f'stride={self.stride}',
            f'padding={self.padding}', f'dilation={self.dilation}'
        ]
        if self.indice_key is not None:
            parts.append(f'indice_key={self.indice_key!r}')
        return ', '.join(parts)

    def _load_from_state_dict(self, state_dict, prefix, *args,
                              **kwargs) -> None:
        """Takes the other library's layout where the shapes tell it."""
        weight = state_dict.get(prefix + 'weight')
        if weight is not None and weight.shape != self.weight.shape:
            turned = (weight.movedim(-1, 0) if self.spconv_layout else
                      weight.movedim(0, -1))
            if turned.shape == self.weight.shape:
                state_dict[prefix + 'weight'] = turned.contiguous()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _layer(name: str, ndim: int, **fixed: bool) -> type[SparseConvolution]:
    """A layer class with ``ndim`` and the kind given."""

    def __init__(self,
                 in_channels: int,
                 out_channels: int,
                 kernel_size: Size,
                 stride: Size = 1,
                 padding: Size = 0,
                 dilation: Size = 1,
                 groups: int = 1,
                 bias: bool = True,
                 indice_key: str | None = None):
        SparseConvolution.__init__(
            self,
            ndim,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            indice_key=indice_key,
            **fixed)

    kind = type(name, (SparseConvolution, ), {
        '__init__': __init__,
        '__module__': __name__,
        '__doc__': f'See :class:`SparseConvolution`; {ndim} dimensions.'
    })
    return MODELS.register_module(module=kind)


def _inverse(name: str, ndim: int) -> type[SparseConvolution]:

    def __init__(self,
                 in_channels: int,
                 out_channels: int,
                 kernel_size: Size,
                 indice_key: str,
                 bias: bool = True):
        SparseConvolution.__init__(
            self,
            ndim,
            in_channels,
            out_channels,
            kernel_size,
            bias=bias,
            inverse=True,
            indice_key=indice_key)

    kind = type(name, (SparseConvolution, ), {
        '__init__': __init__,
        '__module__': __name__,
        '__doc__': 'Undoes the layer with the same ``indice_key``; '
                   f'{ndim} dimensions.'
    })
    return MODELS.register_module(module=kind)


SubMConv2d = _layer('SubMConv2d', 2, subm=True)
SubMConv3d = _layer('SubMConv3d', 3, subm=True)
SparseConv2d = _layer('SparseConv2d', 2)
SparseConv3d = _layer('SparseConv3d', 3)
SparseConvTranspose2d = _layer('SparseConvTranspose2d', 2, transposed=True)
SparseConvTranspose3d = _layer('SparseConvTranspose3d', 3, transposed=True)
SparseInverseConv2d = _inverse('SparseInverseConv2d', 2)
SparseInverseConv3d = _inverse('SparseInverseConv3d', 3)
