"""Whether somebody listens to modules that a fused operation replaces."""

from collections.abc import Iterable

from torch import nn


def hooked(modules: Iterable[nn.Module]) -> bool:
    """Whether one of ``modules`` (their children aside) has a hook that only
    a call of the module itself runs."""
    return any(
        one._forward_hooks or one._forward_pre_hooks or one._backward_hooks
        or one._backward_pre_hooks for one in modules)
