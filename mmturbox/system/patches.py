"""Attributes of other packages that were replaced, and the way back."""

from typing import Any


class Patches:
    """Replaces attributes and puts them back in reverse order."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name``; the old value (or its absence) is kept."""
        if isinstance(owner, dict):
            self._saved.append((owner, name, owner[name]))
            owner[name] = value
            return
        self._saved.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._saved:
            owner, name, value = self._saved.pop()
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)
