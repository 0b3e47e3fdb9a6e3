"""The container of sparse layers, which fuses what follows a convolution."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..layers.hooked import hooked
from .tensor import SparseConvTensor


class SparseModule(nn.Module):
    """A module that takes and gives sparse tensors."""


def is_sparse_module(module: nn.Module) -> bool:
    """Whether ``module`` takes sparse tensors; mmcv's and spconv's count."""
    return any(kind.__name__ == 'SparseModule'
               for kind in type(module).__mro__)


def norm_scale_shift(norm: nn.Module) -> tuple[Tensor, Tensor] | None:
    """A batch norm in evaluation mode as scale and shift, each (C,); None
    where it needs the statistics of the batch."""
    if norm.training or norm.running_var is None:
        return None
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -norm.running_mean * scale
    return scale, shift if norm.bias is None else shift + norm.bias


def conv_norm_act(conv: nn.Module, norm: nn.Module | None,
                  act: nn.Module | None,
                  x: SparseConvTensor) -> SparseConvTensor:
    """A convolution, normalization and ReLU: one pass over the rows, or one
    each where the norm needs the batch or somebody listens to a module."""
    affine = () if norm is None else norm_scale_shift(norm)
    if affine is None or hooked([m for m in (conv, norm, act) if m]):
        return _apply([norm, act], conv(x))
    return conv.fused(x, *affine, relu=act is not None)


def _apply(modules: list[nn.Module | None],
           x: SparseConvTensor) -> SparseConvTensor:
    for module in modules:
        if module is not None and len(x.indices):
            x = x.replace_feature(module(x.features))
    return x


class SparseSequential(SparseModule):
    """Modules one after another; dense ones work on the features.

    Same constructor and state_dict as mmcv's and spconv's. A convolution, the
    batch norm behind it in evaluation mode, and the ReLU behind that are one
    pass over the rows; each of them still runs by itself where it has a hook.
    """

    def __init__(self, *args: Any, **kwargs: nn.Module):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named = list(args[0].items())
        else:
            named = [(str(i), module) for i, module in enumerate(args)]
        for name, module in [*named, *kwargs.items()]:
            self.add(module, name)

    def add(self, module: nn.Module, name: str | None = None) -> None:
        """Append ``module``.

        Raises:
            ValueError: if the name is taken.
        """
        name = str(len(self._modules)) if name is None else name
        if name in self._modules:
            raise ValueError(f'there is a module named {name!r} already')
        self.add_module(name, module)

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> nn.Module:
        return list(self._modules.values())[index]

    def forward(self, x: Any) -> Any:
        from .convolution import SparseConvolution
        modules = list(self._modules.values())
        while modules:
            module = modules.pop(0)
            if isinstance(module, SparseConvolution):
                norm = act = None
                if modules and isinstance(modules[0], _BatchNorm):
                    norm = modules.pop(0)
                if modules and type(modules[0]) is nn.ReLU:
                    act = modules.pop(0)
                x = conv_norm_act(module, norm, act, x)
            elif is_sparse_module(module) or not hasattr(x, 'indices'):
                x = module(x)
            else:
                x = _apply([module], SparseConvTensor.of(x))
        return x


class ToDense(SparseModule):
    """Sparse tensor -> (B, C, *spatial_shape)."""

    def forward(self, x: SparseConvTensor) -> Tensor:
        return x.dense()
