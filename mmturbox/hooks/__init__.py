"""Hooks, registered under ``mmturbox``."""

from .runtime_info import RuntimeInfoHook

__all__ = ['RuntimeInfoHook']
