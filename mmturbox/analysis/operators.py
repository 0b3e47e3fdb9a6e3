"""What a dispatched operator costs: a launch, a read by the host, nothing."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

_SYNC_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_WELL_TAGGED = ('aten', 'prims', 'c10d', 'profiler')
_SYNC_OPS = ('bincount', '_linalg_check_errors')
MASKED = ('index', 'index_put', 'index_put_', '_index_put_impl_')
# Without alias annotation in the schema, yet no kernel.
_NO_KERNEL = ('empty', 'empty_like', 'empty_strided', 'new_empty',
              'new_empty_strided', '_unsafe_view', 'detach', 'detach_',
              'alias', 'lift', 'lift_fresh', 'resize_', 'set_', 'is_pinned',
              'is_same_size', 'record_stream', 'size', 'sym_size', 'stride',
              'sym_stride', 'numel', 'sym_numel', 'storage_offset',
              'sym_storage_offset', 'is_contiguous', 'device', 'layout',
              '_has_same_storage_numel', 'squeeze_', 'unsqueeze_',
              't_', 'transpose_', 'as_strided_', '_reshape_alias')


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def classify(func, args: tuple, kwargs: dict) -> tuple[bool, str]:
    """(whether ``func`` is a launch, what it makes the host read or '')."""
    name = func.overloadpacket.__name__
    view = any(r.alias_info is not None and not r.alias_info.is_write
               for r in func._schema.returns)
    launch = not view and name not in _NO_KERNEL and func.namespace not in (
        'prim', 'profiler')
    if name == '_local_scalar_dense':
        return launch, '.item()'
    if name in MASKED:
        return launch, 'boolean mask'
    if name in _SYNC_OPS or any(t in func.tags for t in _SYNC_TAGS):
        return launch, name.strip('_')
    if func.namespace not in _WELL_TAGGED and has_dynamic_size(
            func, args, kwargs):
        return launch, f'size of the output of {name}'
    return launch, ''


def has_dynamic_size(func, args: tuple, kwargs: dict) -> bool:
    """Whether the host must read how large the outputs of an operator are.

    Its fake function tells: it gives a size that no input determines. An
    operator without one is taken to be static.
    """
    # Imported late: this takes a second or two, and few operators need it.
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    args, kwargs = tree_map_only(Tensor, mode.from_tensor, (args, kwargs))
    try:
        with mode:
            outputs = func(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return False
    return any(
        not isinstance(size, int) for output in tensors([outputs])
        for size in output.shape)
