"""What the fused losses cannot differentiate by."""

from typing import Any

from torch import Tensor


def constant(target: Tensor, weight: Tensor | None, avg_factor: Any) -> bool:
    """Whether no gradient is wanted, and the normaliser is one number."""
    tensors = [t for t in (target, weight, avg_factor)
               if isinstance(t, Tensor)]
    if isinstance(avg_factor, Tensor) and avg_factor.numel() != 1:
        return False
    return not any(t.requires_grad for t in tensors)
