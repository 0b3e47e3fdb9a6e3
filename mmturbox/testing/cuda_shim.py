"""Run the CUDA kernels on CPU tensors, in the tests of the operators."""

import contextlib
import functools
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from mmturbox.ops import OPERATORS

_NAMESPACE = 'mmturbox_shim'
_BUILD = Path(__file__).parents[2] / 'tools/build_ops.py'


@functools.cache
def load() -> torch.library.Library:
    """Build ``build/shim/kernels.so`` and load it, once a process.

    Its kernels are operators of ``torch.ops.mmturbox_shim`` for the CPU.

    Raises:
        subprocess.CalledProcessError: where the sources do not compile.
    """
    spec = importlib.util.spec_from_file_location('build_ops', _BUILD)
    build_ops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_ops)
    path = build_ops.build('shim')
    library = torch.library.Library(_NAMESPACE, 'DEF')
    for name in OPERATORS:
        schema = getattr(torch.ops.mmturbox, name).default._schema
        library.define(str(schema).partition('::')[2])
    torch.ops.load_library(str(path))
    return library


def kernels() -> list[str]:
    """Operators that have a CUDA kernel."""
    load()
    return [
        name for name in OPERATORS
        if torch._C._dispatch_has_kernel_for_dispatch_key(
            f'{_NAMESPACE}::{name}', 'CPU')
    ]


@contextlib.contextmanager
def cuda_shim() -> Iterator[None]:
    """While it lasts ``torch.ops.mmturbox.*`` of CPU tensors run the CUDA
    kernels, through the execution shim."""
    names = kernels()
    routes = torch.library.Library('mmturbox', 'IMPL')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for name in names:
            kernel = getattr(getattr(torch.ops, _NAMESPACE), name)
            routes.impl(name, kernel, 'CPU', allow_override=True)
    try:
        yield
    finally:
        routes._destroy()
