"""What is done to a built model, by the name that a planned config asks with:
``operator_modules = dict(sparse_conv=True)``."""

from collections.abc import Callable

from torch import nn


def _sparse_conv(model: nn.Module) -> int:
    from .sparse import convert_sparse
    return convert_sparse(model)


CONVERSIONS: dict[str, Callable[[nn.Module], int]] = {
    'sparse_conv': _sparse_conv,
}
"""Name -> function that replaces layers in place and says how many."""
