"""Sub-commands of ``tools/create_data.py``: one module each.

A module has ``HELP`` (a line), ``add_arguments(parser)`` and ``run(args)``.
``run`` raises ``ValueError`` or ``OSError`` for what the user can put right.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that vanishes at the end; give it what is done and the total."""
    from rich.progress import Progress
    with Progress(transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(
            task, completed=done, total=total)
