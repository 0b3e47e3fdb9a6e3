"""One place where operators are declared and native kernels are loaded.

An operator is declared here with its schema, its pure-torch reference (a
kernel for every device), its fake function and its autograd rule. The native
modules ``mmturbox._C`` (CPU) and ``mmturbox._cuda`` (CUDA) only add kernels
for their device, which take the place of the reference when loaded.
"""

import importlib
import os
import warnings
from collections.abc import Callable

import torch

NAMESPACE = 'mmturbox'
_LIBRARY = torch.library.Library(NAMESPACE, 'DEF')
_MODULES = {'cpu': 'mmturbox._C', 'cuda': 'mmturbox._cuda'}

OPERATORS: dict[str, Callable] = {}
"""Operator name -> its pure-torch reference."""
MISSING: dict[str, str] = {}
"""Backend ('cpu', 'cuda') -> why its native module is not loaded."""


def define(schema: str,
           reference: Callable,
           fake: Callable,
           setup_context: Callable | None = None,
           backward: Callable | None = None) -> Callable:
    """Declare ``torch.ops.mmturbox.<name>``.

    Args:
        schema: the schema with the operator's name, without namespace.
        reference: pure-torch kernel; runs wherever no native one is loaded.
        fake: gives outputs of the right shapes and dtypes without data.
        setup_context, backward: the autograd rule of
            ``torch.library.register_autograd``; leave out for operators
            without gradient.

    Returns:
        The operator, to be called like a function.
    """
    name = schema.split('(', 1)[0].strip()
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, reference, 'CompositeExplicitAutograd')
    torch.library.register_fake(f'{NAMESPACE}::{name}', fake, lib=_LIBRARY)
    if backward is not None:
        torch.library.register_autograd(
            f'{NAMESPACE}::{name}',
            backward,
            setup_context=setup_context,
            lib=_LIBRARY)
    OPERATORS[name] = reference
    return getattr(getattr(torch.ops, NAMESPACE), name)


def native(device: str = 'cpu') -> bool:
    """Whether the native kernels of ``device`` are loaded."""
    return device in _MODULES and device not in MISSING


def load_native() -> None:
    """Load the native modules that fit this torch; called once at import.

    Raises:
        RuntimeError: with ``MMTURBOX_REQUIRE_OPS=1`` in the environment and
            no native module for the CPU.
    """
    for device, module in _MODULES.items():
        if device == 'cuda' and torch.version.cuda is None:
            MISSING[device] = 'this torch has no CUDA'
            continue
        try:
            importlib.import_module(module)
        except ImportError as error:
            MISSING[device] = str(error)
    if 'cpu' not in MISSING:
        return
    text = (f'the native operators (mmturbox._C) are not loaded: '
            f'{MISSING["cpu"]} (running torch {torch.__version__}). Build '
            'them with `pip install --no-build-isolation -e .`')
    if os.environ.get('MMTURBOX_REQUIRE_OPS') == '1':
        raise RuntimeError(f'MMTURBOX_REQUIRE_OPS=1, but {text}')
    warnings.warn(
        f'{text}. Pure-torch references are used instead; results are equal, '
        'speed is not.',
        stacklevel=2)
