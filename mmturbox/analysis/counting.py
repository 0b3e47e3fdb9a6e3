"""Host synchronisations, launches and uploads of a piece of code.

What a GPU would feel, measured on any machine:

- A *host sync* is one event in which the host needs a value of the device:
  ``.item()``, ``float()``, ``nonzero``, an index by a boolean mask, ``.cpu()``
  ... ``mask_index[mask] = number`` is none: torch fills without reading.
- A *launch* is a dispatched operator that is no view and no metadata.
- An *upload* is a copy of host data to the device: ``torch.tensor(data,
  device=...)``, ``new_tensor``, ``.to(device)`` of a host tensor, an index
  given as a list.

On a CPU all tensors look alike, so it is followed which of them would live on
the host on a GPU machine too: those made without a device from host data
(``torch.tensor([1, 2])``), those passed to :meth:`Counter.mark_host`, and
what is computed from them alone. Work on those is not counted; moving them by
``.to(device)`` is the upload.

Neither a dispatch mode nor a function mode sees everything (``.tolist()``
dispatches nothing on a CPU, the backward pass calls no Python function), so
both are used, and each event is counted by one of them.
"""

import collections
import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .operators import MASKED, classify, tensors

_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.dirname(os.path.abspath(__file__))
_HOST = '_mmturbox_host'
_ENGINE = torch.autograd._engine_run_backward

# Python calls that read values and need not dispatch anything on a CPU.
_READS = {
    'tolist': '.tolist()',
    'numpy': '.numpy()',
    '__array__': 'numpy array of a tensor',
    'cpu': '.cpu()',
}
_MAKERS = ('tensor', 'as_tensor', 'new_tensor')
# Causes of _local_scalar_dense by the Python call it happens in.
_ITEM = {
    'item': '.item()',
    '__float__': 'float()',
    '__int__': 'int()',
    '__bool__': 'bool()',
    '__index__': 'tensor used as an integer',
    '__getitem__': 'index or slice by a scalar tensor',
    '__setitem__': 'index or slice by a scalar tensor',
}


class Event(NamedTuple):
    """What happened, why, and in which line of user code."""
    kind: str  # 'sync', 'launch' or 'upload'
    cause: str
    where: str


def show_file(path: str) -> str:
    """``path`` from the package or from the working directory on."""
    _, found, rest = path.rpartition(f'site-packages{os.sep}')
    if found:
        return rest
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _caller() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _HERE)) and file[0] != '<':
            return f'{show_file(file)}:{frame.f_lineno}'
        frame = frame.f_back
    return '(no Python frame)'


class Counter:
    """Counts what happens in its ``with`` block, on the calling thread.

    Example::

        with Counter() as counter:
            step()
        print(counter.syncs, counter.lines('sync'))

    Args:
        accelerator: whether the device is another one than the CPU; then a
            tensor's device tells where it lives.
    """

    def __init__(self, accelerator: bool = False):
        self.accelerator = accelerator
        self.events: collections.Counter[Event] = collections.Counter()
        self._call = ''  # the outermost Python call of torch, while in it
        self._muted = False  # its reads are already counted
        self._host_call = False  # it works on host tensors only
        self._probing = False
        self._kinds: dict[Any, tuple[bool, str]] = {}
        self._modes = (_Functions(self), _Dispatches(self))

    def __enter__(self) -> 'Counter':
        torch.autograd._engine_run_backward = self._run_backward
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
        torch.autograd._engine_run_backward = _ENGINE

    def total(self, kind: str) -> int:
        return sum(n for e, n in self.events.items() if e.kind == kind)

    @property
    def syncs(self) -> int:
        return self.total('sync')

    @property
    def launches(self) -> int:
        return self.total('launch')

    @property
    def uploads(self) -> int:
        return self.total('upload')

    def lines(self, kind: str) -> list[tuple[str, int, str]]:
        """(file:line, count, causes), the worst line first."""
        counts: collections.Counter[str] = collections.Counter()
        causes: dict[str, collections.Counter] = {}
        for event, number in self.events.items():
            if event.kind == kind:
                counts[event.where] += number
                causes.setdefault(event.where, collections.Counter())[
                    event.cause] += number
        return [(where, number,
                 ', '.join(c for c, _ in causes[where].most_common(4)))
                for where, number in counts.most_common()]

    def mark_host(self, tensors: Iterable[Tensor]) -> None:
        """State that these would live on the host on a GPU machine too."""
        for tensor in tensors:
            setattr(tensor, _HOST, True)

    def is_host(self, tensor: Tensor) -> bool:
        if tensor.device.type != 'cpu':
            return False
        return self.accelerator or hasattr(tensor, _HOST)

    def record(self, kind: str, cause: str, number: int = 1) -> None:
        if number:
            self.events[Event(kind, cause, _caller())] += number

    # What the modes report ------------------------------------------------

    def python_call(self, func, args: tuple, kwargs: dict) -> Any:
        """A call of torch from Python: reads, uploads, host tensors."""
        if self._probing:
            return func(*args, **kwargs)
        name = getattr(func, '__name__', '').partition('.')[0]
        host = not self._is_device(kwargs.get('device')) and all(
            map(self.is_host, tensors((*args, *kwargs.values()))))
        if name == 'lift_fresh':  # torch.from_numpy, torch.FloatTensor
            host = True
        if not host:
            self._count_call(name, args, kwargs)
        before = self._call, self._muted, self._host_call
        self._call = name
        self._host_call = host
        self._muted = name in _READS or (name == '__setitem__' and isinstance(
            args[2], (bool, int, float)))
        try:
            out = func(*args, **kwargs)
        finally:
            self._call, self._muted, self._host_call = before
        if isinstance(out, Tensor) or isinstance(out, (list, tuple)):
            out = self._place(name, args, kwargs, host, out)
        return out

    def _run_backward(self, *args, **kwargs) -> Any:
        # torch turns the function mode off inside of a call of `backward`,
        # but the custom functions that run in there are Python too.
        with self._modes[0]:
            return _ENGINE(*args, **kwargs)

    def _is_device(self, device: Any) -> bool:
        """Whether an explicit ``device`` argument means the device."""
        if device is None:
            return False
        return not self.accelerator or torch.device(device).type != 'cpu'

    def _count_call(self, name: str, args: tuple, kwargs: dict) -> None:
        if name in _READS:
            self.record('sync', _READS[name])
        elif name in _MAKERS:
            self._count_maker(name, args[name == 'new_tensor':], kwargs)
        elif name == 'to' and self._target(args, kwargs) == 'host':
            self.record('sync', '.to(cpu)')
        elif name == 'copy_':
            to_host, from_host = map(self.is_host, args[:2])
            self.record('upload', 'copy_ from the host', int(from_host))
            self.record('sync', 'copy_ to the host', int(to_host))
        elif name in ('__getitem__', '__setitem__'):
            if not self.is_host(args[0]):
                self._count_index(*args)

    def _count_maker(self, name: str, args: tuple, kwargs: dict) -> None:
        data = args[0] if args else kwargs.get('data')
        if isinstance(data, Tensor):
            return
        if isinstance(data, (list, tuple)):
            read = [t for t in tensors(data) if not self.is_host(t)]
            self.record('sync', f'{name}() of tensors', len(read))
        if name == 'new_tensor' or self._is_device(kwargs.get('device')):
            self.record('upload', f'{name}()')

    def _count_index(self, _, index: Any, value: Any = None) -> None:
        parts = index if isinstance(index, tuple) else (index, )
        for part in (*parts, value):
            if isinstance(part, Tensor):
                moved = part.dim() > 0 and self.is_host(part)
            else:
                moved = isinstance(part, (list, np.ndarray))
            self.record('upload', 'index or value from the host', int(moved))

    def _place(self, name: str, args: tuple, kwargs: dict, host: bool,
               out: Any) -> Any:
        """Note where the result lives, and count moves by ``.to()``."""
        if name == 'cpu' and not host:
            if out is args[0]:  # on a CPU: no copy was made
                out = torch.ops.aten.alias(out)
            self.mark_host([out])
        elif name in ('to', 'cuda') and self.is_host(args[0]):
            target = self._target(args, kwargs)
            if name == 'cuda' or target == 'device':
                self.record('upload', f'.{name}(device)')
                if out is args[0]:
                    out = torch.ops.aten.alias(out)
                if hasattr(out, _HOST):
                    delattr(out, _HOST)
            else:
                self.mark_host([out])
        elif host:
            self.mark_host(tensors([out]))
        return out

    def _target(self, args: tuple, kwargs: dict) -> str | None:
        """Where ``.to(...)`` moves: 'host', 'device' or None (stays)."""
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, Tensor):
                return 'host' if self.is_host(value) else 'device'
            if isinstance(value, (str, torch.device)):
                on_cpu = torch.device(value).type == 'cpu'
                return 'host' if self.accelerator and on_cpu else 'device'
        return None

    def dispatch(self, func, args: tuple, kwargs: dict) -> Any:
        """A dispatched operator: launches, and reads below Python."""
        if func not in self._kinds:
            self._probing = True
            try:
                self._kinds[func] = classify(func, args, kwargs)
            finally:
                self._probing = False
        launch, sync = self._kinds[func]
        if not self._host_call:
            if launch:
                self.record('launch', func.name())
            if sync and not self._muted and self._reads(func, args, kwargs):
                cause = sync
                if sync == '.item()':
                    cause = _ITEM.get(self._call, f'{self._call}() reads a '
                                      'value' if self._call else sync)
                self.record('sync', cause)
        return func(*args, **kwargs)

    def _reads(self, func, args: tuple, kwargs: dict) -> bool:
        name = func.overloadpacket.__name__
        if name in MASKED:
            return any(
                t.dtype in (torch.bool, torch.uint8) and not self.is_host(t)
                for t in tensors([args[1]]))
        if name == 'repeat_interleave':
            return kwargs.get('output_size') is None and len(args) < 2
        return not all(map(self.is_host, tensors(args)))


class _Functions(TorchFunctionMode):

    def __init__(self, counter: Counter):
        super().__init__()
        self.counter = counter

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.counter.python_call(func, args, kwargs or {})


class _Dispatches(TorchDispatchMode):

    def __init__(self, counter: Counter):
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.counter.dispatch(func, args, kwargs or {})
