"""The error that ends a program with one line."""


class ConfigError(ValueError):
    """The config, or what it names, cannot be trained or tested.

    The text names the thing and the remedy; the programs in ``tools/`` print
    it without a traceback.
    """
