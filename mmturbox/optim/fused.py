"""What torch's fused optimizer kernels can do, and what they take on trust.

The CPU kernels walk parameter, gradient and state by flat index: a gradient
whose strides differ from its parameter's gives wrong numbers there without
an error (an exception on CUDA). The layouts are therefore made equal here.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

# On other accelerators the fused kernels are untried.
DEVICES = {
    Adam: ('cpu', 'cuda'),
    AdamW: ('cpu', 'cuda'),
    SGD: ('cpu', 'cuda'),
    Adagrad: ('cpu', ),
}
# Half-precision parameters would be updated with other rounding than stock's.
DTYPES = (torch.float32, torch.float64)


def why_flags_forbid(settings: Any) -> str | None:
    """Why the user's settings (a group or a config) exclude fused kernels."""
    if settings.get('fused') is not None and not settings['fused']:
        return 'fused=False is set'
    if settings.get('foreach') is not None:
        return f'foreach={settings["foreach"]} is set'
    for flag in ('capturable', 'differentiable'):
        if settings.get(flag):
            return f'{flag}=True is set'
    if settings.get('momentum') and settings.get('dampening'):
        # Its first step differs, which a skipped step cannot tell the
        # kernel without a host read.
        return 'momentum with dampening has no fused equal'
    return None


def why_not_fusable(optimizer: Optimizer) -> str | None:
    """Why ``optimizer`` cannot be stepped by a fused kernel, or None."""
    kind = type(optimizer)
    if kind not in DEVICES:
        return f'{kind.__name__} has no fused kernel'
    for group in optimizer.param_groups:
        reason = why_flags_forbid(group)
        if reason:
            return reason
        for p in group['params']:
            if type(p.data) is not Tensor or p.layout != torch.strided:
                return f'a parameter is a {type(p.data).__name__}'
            if p.device.type not in DEVICES[kind]:
                return f'{kind.__name__} is not fused on {p.device.type}'
            if p.dtype not in DTYPES:
                return f'parameters are {p.dtype}'
            if not torch.ops.aten.is_non_overlapping_and_dense(p):
                return 'a parameter has gaps between its elements'
    return None


def match_layouts(params: Sequence[Tensor]) -> bool:
    """Give gradients the strides of their parameters.

    Returns:
        False if there is a sparse gradient, for which no kernel is fused.
    """
    for p in params:
        grad = p.grad
        if grad.layout != torch.strided:
            return False
        if grad.stride() != p.stride():
            p.grad = torch.empty_like(p).copy_(grad)
    return True


def prepare_state(optimizer: Optimizer) -> None:
    """Bring the state, which may be stock's, into the form of the kernels.

    Step counters move to the device of their parameter, moments get its
    strides. The values stay the same.
    """
    for p, state in optimizer.state.items():
        if not isinstance(p, Tensor):
            continue
        for key, value in state.items():
            if not isinstance(value, Tensor):
                continue
            if key == 'step':
                state[key] = value.to(p.device, torch.float32)
            elif value.shape == p.shape and value.stride() != p.stride():
                state[key] = torch.empty_like(p).copy_(value)


def prepare_momentum(optimizer: SGD) -> None:
    """Create missing momentum buffers, as zeros.

    The kernel leaves them uninitialised where its first step is skipped, and
    takes either all or none. Without dampening ``momentum * 0 + grad`` is
    the stock first step.
    """
    for group in optimizer.param_groups:
        if not group['momentum']:
            continue
        for p in group['params']:
            state = optimizer.state[p]
            if p.grad is not None and state.get('momentum_buffer') is None:
                state['momentum_buffer'] = torch.zeros_like(p)
