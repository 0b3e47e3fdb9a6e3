"""The CPU in the place of a CUDA device, for tests that ask for one.

Tests written for a GPU then check operators on CPU tensors. Nothing is
emulated: tensors stay on the CPU, say so (``is_cuda`` is False), and calls
about the device do nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_ANSWERS = {
    'is_available': True,
    'device_count': 1,
    'current_device': 0,
    'set_device': None,
    'synchronize': None,
    'empty_cache': None,
    'manual_seed': None,
}
_TYPES = ('HalfTensor', 'FloatTensor', 'DoubleTensor', 'IntTensor',
          'LongTensor')


def _cpu(value: object) -> object:
    """``value``, or the CPU if it is the name of a CUDA device."""
    is_cuda = (
        value.type == 'cuda' if isinstance(value, torch.device) else
        isinstance(value, str) and value.partition(':')[0] == 'cuda')
    return torch.device('cpu') if is_cuda else value


class _OnCPU(TorchFunctionMode):
    """Turns ``.cuda()`` and every device argument into the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*map(_cpu, args),
                    **{k: _cpu(v) for k, v in (kwargs or {}).items()})


@contextmanager
def cpu_as_cuda() -> Iterator[None]:
    """Let CUDA look available and mean the CPU.

    Enter it before packages that ask for CUDA at import, such as mmcv.
    Holds for this thread and, with ``fork``, for child processes.
    """
    answers = {
        name: lambda *args, _answer=answer, **kwargs: _answer
        for name, answer in _ANSWERS.items()
    }
    types = {name: getattr(torch, name) for name in _TYPES}
    with mock.patch.multiple(torch.cuda, **answers, **types), _OnCPU():
        yield
