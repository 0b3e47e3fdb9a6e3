"""The table of functions that we offer under mmcv's names."""

from collections.abc import Callable

PROVIDED: dict[str, Callable] = {}
"""mmcv's name in ``mmcv._ext`` -> our function."""


def provides(function: Callable) -> Callable:
    """Offer ``function`` as ``mmcv._ext.<its own name>``.

    Use it as a decorator in any module of this package whose name has no
    leading underscore; such modules are imported when the provider is built.
    The function takes what ``mmcv/ops/*.py`` pass, by the same keyword
    names, and fills output tensors in place where mmcv's does.

    Raises:
        ValueError: if two functions claim one name.
    """
    name = function.__name__
    if name in PROVIDED:
        raise ValueError(f'two functions are offered as mmcv._ext.{name}: '
                         f'{PROVIDED[name].__module__} and '
                         f'{function.__module__}')
    PROVIDED[name] = function
    return function
