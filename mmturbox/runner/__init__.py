"""The Runner that plans and applies the passes."""

from .turbo_runner import TurboRunner

__all__ = ['TurboRunner']
