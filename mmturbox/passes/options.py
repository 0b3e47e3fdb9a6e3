"""Reading ``turbo = dict(...)``: the level, passes on or off, options."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mmturbox.errors import ConfigError

from .base import ConfigPass

LEVELS = ('same', 'max')
# Written by the driver into the config it has edited.
APPLIED = 'applied'


class OptionTypeError(ConfigError, TypeError):
    """A value in ``turbo`` has the wrong type."""


@dataclass
class Request:
    """What the user says of one pass."""
    on: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)


def unknown_name(name: str, known: Iterable[str], kind: str) -> ConfigError:
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'did you mean {close[0]!r}? ' if close else ''
    return ConfigError(f'unknown {kind} {name!r}: {hint}'
                      f'known are {", ".join(known)}')


def _type_fits(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(default))


def _read_options(item: ConfigPass, given: dict) -> dict[str, Any]:
    for key, value in given.items():
        if key not in item.options:
            if not item.options:
                raise ConfigError(f'turbo.{item.name} takes no options, got '
                                 f'{key!r}; use turbo = dict({item.name}='
                                 'True or False)')
            raise unknown_name(key, item.options,
                               f'option of turbo.{item.name}')
        default = item.options[key]
        if not _type_fits(value, default):
            raise OptionTypeError(f'turbo.{item.name}.{key} must be a '
                            f'{type(default).__name__}, got '
                            f'{type(value).__name__} {value!r}')
    return dict(given)


def read_turbo(
    turbo: Any, passes: dict[str, ConfigPass]
) -> tuple[str, dict[str, Request]]:
    """The level and a request for each pass.

    Raises:
        ConfigError: unknown level, pass or option (with the closest name).
        OptionTypeError: a value of the wrong type, naming the option.
    """
    if turbo is None:
        turbo = {}
    if not isinstance(turbo, dict):
        raise OptionTypeError(
            'turbo must be a dict such as dict(level="same"), got '
            f'{type(turbo).__name__} {turbo!r}')
    level = turbo.get('level', 'same')
    if level not in LEVELS:
        raise ConfigError(f'turbo.level must be one of {", ".join(LEVELS)}, '
                         f'got {level!r}')
    requests = {name: Request() for name in passes}
    for name, value in turbo.items():
        if name in ('level', APPLIED):
            continue
        if name not in passes:
            raise unknown_name(name, [*passes, 'level'], 'turbo option')
        if value is None:
            continue
        if isinstance(value, bool):
            requests[name].on = value
        elif isinstance(value, dict):
            requests[name].on = True
            requests[name].options = _read_options(passes[name], value)
        else:
            raise OptionTypeError(
                f'turbo.{name} must be True, False or a dict of options, got '
                f'{type(value).__name__} {value!r}')
    return level, requests
