"""mmturbox: OpenMMLab driving models train and infer faster, same losses.

Importing this package costs a few milliseconds and changes nothing. What
switches acceleration on is ``mmturbox.enable``. Every registered component is
also an attribute (``mmturbox.TurboRunner``), so that a config may name
``runner_type='mmturbox.TurboRunner'`` without any import line.
"""

__version__ = '0.1.0'


def __getattr__(name: str):
    # Component names are CamelCase; anything else is an ordinary miss. The
    # check also keeps `import mmturbox.sub` from loading the registries.
    if not name[:1].isupper():
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from .registry import find_component
    component = find_component(name)
    if component is None:
        raise AttributeError(f'mmturbox has no component {name!r}')
    return component
