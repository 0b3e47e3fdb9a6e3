"""Sparse max pooling."""

from mmturbox.ops import SparseSpec, sparse_max_pool
from mmturbox.registry import MODELS

from .convolution import Size, _per_axis
from .geometry import find_rulebook
from .sequential import SparseModule
from .tensor import SparseConvTensor


class SparseMaxPool(SparseModule):
    """Maximum over the rows in a window.

    Args:
        ndim: spatial dimensions.
        kernel_size, stride, padding, dilation: an integer for all axes or
            one an axis.
        subm: the output has the rows of the input.
        from_zero: the maximum starts at zero, as mmcv's does; spconv's
            starts at the lowest number.
    """

    def __init__(self,
                 ndim: int,
                 kernel_size: Size,
                 stride: Size = 1,
                 padding: Size = 0,
                 dilation: Size = 1,
                 subm: bool = False,
                 from_zero: bool = False):
        super().__init__()
        self.ndim = ndim
        self.kernel_size = _per_axis(kernel_size, ndim)
        self.stride = _per_axis(stride, ndim)
        self.padding = _per_axis(padding, ndim)
        self.dilation = _per_axis(dilation, ndim)
        self.subm = subm
        self.from_zero = from_zero
        self.spec = SparseSpec(self.kernel_size, self.stride, self.padding,
                               self.dilation,
                               'subm' if subm else 'conv').per_axis(ndim)

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        x = SparseConvTensor.of(x)
        try:
            book = find_rulebook(x, self, self.spec)
        except ValueError as error:
            raise ValueError(f'{self}: {error}') from error
        out = sparse_max_pool(x.features, book.tables)
        if self.from_zero:
            out = out.clamp(min=0)
        return x.derive(out, book.coords, book.spatial_shape)

    def extra_repr(self) -> str:
        return (f'kernel_size={self.kernel_size}, stride={self.stride}, '
                f'padding={self.padding}, dilation={self.dilation}')


@MODELS.register_module()
class SparseMaxPool2d(SparseMaxPool):
    """See :class:`SparseMaxPool`; two dimensions."""

    def __init__(self,
                 kernel_size: Size,
                 stride: Size = 1,
                 padding: Size = 0,
                 dilation: Size = 1):
        super().__init__(2, kernel_size, stride, padding, dilation)


@MODELS.register_module()
class SparseMaxPool3d(SparseMaxPool):
    """See :class:`SparseMaxPool`; three dimensions."""

    def __init__(self,
                 kernel_size: Size,
                 stride: Size = 1,
                 padding: Size = 0,
                 dilation: Size = 1):
        super().__init__(3, kernel_size, stride, padding, dilation)
