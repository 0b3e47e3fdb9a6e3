"""Parameter groups of equal settings, run as one.

MMEngine makes one group for each parameter where ``paramwise_cfg`` is given,
which leaves a fused or foreach kernel with one tensor at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from torch.optim import Optimizer


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class MergedGroups:
    """Swaps merged groups in for the time of one optimizer step.

    ``optimizer.param_groups`` stays the user's: schedulers, checkpoints and
    learning-rate logs do not notice. Settings are looked at in every step,
    since a scheduler may change those of single groups.

    Args:
        optimizer: one whose step reads nothing of a group but ``params`` and
            the keys of ``optimizer.defaults``.
        overrides: settings that the merged groups have instead of the
            user's, e.g. ``dict(fused=True)``.
        merge: False only overrides.
    """

    def __init__(self,
                 optimizer: Optimizer,
                 overrides: dict[str, Any],
                 merge: bool = True):
        self._optimizer = optimizer
        self._overrides = overrides
        self._merges = merge
        self._keys = [k for k in optimizer.defaults if k not in overrides]
        self._settings_of = itemgetter(*self._keys)

    def merge(self) -> list[dict[str, Any]]:
        """The merged groups, in the order in which the settings occur."""
        if not self._merges:
            return [
                dict(group, **self._overrides)
                for group in self._optimizer.param_groups
            ]
        found: dict[tuple, list] = {}
        for group in self._optimizer.param_groups:
            settings = self._settings_of(group)
            try:
                params = found.setdefault(settings, [])
            except TypeError:
                settings = tuple(map(_hashable, settings))
                params = found.setdefault(settings, [])
            params += group['params']
        return [
            dict(
                zip(self._keys, settings, strict=True),
                params=params,
                **self._overrides) for settings, params in found.items()
        ]

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        users = self._optimizer.param_groups
        self._optimizer.param_groups = self.merge()
        try:
            yield
        finally:
            self._optimizer.param_groups = users
