"""Our sparse layers in the place of stock ones, in a model that is built."""

import functools

import torch
from torch import nn

from .convolution import SparseConvolution
from .pool import SparseMaxPool
from .sequential import SparseSequential, conv_norm_act
from .tensor import SparseConvTensor

_CONVOLUTIONS = ('SubMConv', 'SparseConv', 'SparseInverseConv')
_PACKAGES = ('mmcv', 'spconv')


def _stock(module: nn.Module) -> str | None:
    """'mmcv' or 'spconv' if ``module`` is a sparse layer of theirs."""
    package = type(module).__module__.partition('.')[0]
    return package if package in _PACKAGES else None


def _name(module: nn.Module) -> str:
    return type(module).__name__


def _convolution(module: nn.Module, package: str) -> SparseConvolution:
    # On the meta device no random number is drawn for weights, of which the
    # stock run knows nothing.
    with torch.device('meta'):
        new = SparseConvolution(
            module.ndim,
            module.in_channels,
            module.out_channels,
            list(module.kernel_size),
            list(module.stride),
            list(module.padding),
            list(module.dilation),
            module.groups,
            module.bias is not None,
            module.subm,
            list(module.output_padding),
            module.transposed,
            module.inverse,
            module.indice_key,
            spconv_layout=package == 'spconv')
    new.weight, new.bias = module.weight, module.bias
    return new


def _twin(module: nn.Module) -> nn.Module | None:
    """Ours for a stock sparse layer, with its very parameters; or None."""
    package, name = _stock(module), _name(module)
    if package is None:
        return None
    if name == 'SparseSequential':
        new = SparseSequential(**module._modules)
    elif name.startswith('SparseMaxPool'):
        new = SparseMaxPool(module.ndim, list(module.kernel_size),
                            list(module.stride), list(module.padding),
                            list(module.dilation), module.subm,
                            package == 'mmcv')
    elif name.startswith(_CONVOLUTIONS) or name == 'SparseConvolution':
        new = _convolution(module, package)
    else:
        return None
    for hooks in ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks',
                  '_backward_pre_hooks'):
        getattr(new, hooks).update(getattr(module, hooks))
    return new.train(module.training)


@functools.cache
def _basic_block(kind: type) -> type:
    """mmdet3d's SparseBasicBlock with its convolutions fused."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        x = SparseConvTensor.of(x)
        out = conv_norm_act(self.conv1, self.norm1, self.relu, x)
        out = conv_norm_act(self.conv2, self.norm2, None, out)
        identity = x if self.downsample is None else self.downsample(x)
        return out.replace_feature(
            self.relu(out.features + identity.features))

    return type(kind.__name__, (kind, ), {
        'forward': forward,
        '__module__': __name__
    })


def convert_sparse(model: nn.Module) -> int:
    """Replace the sparse layers of mmcv and spconv in ``model``.

    Parameters stay the same objects under the same names, so that
    optimizers, checkpoints and EMA see no difference.

    Returns:
        How many layers were replaced.
    """
    made: dict[nn.Module, nn.Module | None] = {}

    def convert(parent: nn.Module) -> None:
        for name, child in parent._modules.items():
            if child is None:
                continue
            if child not in made:
                convert(child)
                made[child] = _twin(child)
            if made[child] is not None:
                parent._modules[name] = made[child]
        kind = type(parent)
        if (kind.__name__ == 'SparseBasicBlock'
                and kind.__module__.startswith('mmdet3d.')):
            parent.__class__ = _basic_block(kind)

    convert(model)
    return sum(new is not None for new in made.values())
