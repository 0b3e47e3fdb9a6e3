"""Optimizer wrappers, registered under ``mmturbox``."""

from .optim_wrapper import OptimWrapper

__all__ = ['OptimWrapper']
