"""OptimWrapper with a fused step, merged groups and clipping without reads."""

import logging
import math

import torch
from mmengine.logging import print_log
from mmengine.optim import OptimWrapper as StockOptimWrapper
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD, Optimizer

from mmturbox.hooks.deferred_scalars import defer_scalar, pending_of
from mmturbox.registry import OPTIM_WRAPPERS

from .fused import (
    match_layouts,
    prepare_momentum,
    prepare_state,
    why_not_fusable,
)
from .merged_groups import MergedGroups


@OPTIM_WRAPPERS.register_module()
class OptimWrapper(StockOptimWrapper):
    """MMEngine's OptimWrapper, updating all parameters in a few launches.

    - Adam, AdamW, SGD (and Adagrad on the CPU) step by torch's fused kernel,
      unless the user's flags or the parameters do not allow it.
    - Groups of equal settings are stepped as one. ``param_groups`` and the
      checkpoint stay as the user's config makes them, with the user's flags:
      state dicts load both ways with MMEngine's OptimWrapper.
    - The clipping factor is handed to the kernel on the device; the norm is
      read only when somebody looks at ``train/grad_norm``.
    - A step whose gradient norm is not finite is skipped (stock makes all
      parameters NaN). Parameters and optimizer state keep their values, on
      all ranks alike, since reduced gradients are equal.

    Without a fused kernel clipping reads the norm once a step, as stock does.

    Args:
        optimizer, accumulative_counts, clip_grad: as in MMEngine.
        fused: use a fused kernel where one fits.
        merge: step groups of equal settings as one.
        on_nonfinite: ``'skip'`` the step when the gradient norm is not
            finite, or ``'raise'`` a RuntimeError, which costs a host read in
            each step; the latter also if ``clip_grad`` asks for
            ``error_if_nonfinite``. Only looked at when clipping by norm.
    """

    def __init__(self,
                 optimizer: Optimizer,
                 accumulative_counts: int = 1,
                 clip_grad: dict | None = None,
                 fused: bool = True,
                 merge: bool = True,
                 on_nonfinite: str = 'skip'):
        if on_nonfinite not in ('skip', 'raise'):
            raise ValueError("on_nonfinite must be 'skip' or 'raise', got "
                             f'{on_nonfinite!r}')
        super().__init__(optimizer, accumulative_counts, clip_grad)
        self._norm_args = None
        if self.clip_grad_kwargs and self.grad_name == 'grad_norm':
            args = dict(self.clip_grad_kwargs)
            if args.pop('error_if_nonfinite', False):
                on_nonfinite = 'raise'
            if 'max_norm' not in args:
                raise ValueError('clip_grad by norm needs max_norm, got '
                                 f'{sorted(self.clip_grad_kwargs)}')
            self._max_norm = float(args.pop('max_norm'))
            self._norm_args = args
        self._raises = on_nonfinite == 'raise'
        self._skipped = 0
        reason = why_not_fusable(optimizer) if fused else 'fused=False'
        self._fused = reason is None
        if reason:
            print_log(f'the optimizer is not fused: {reason}', 'current')
        overrides = dict(fused=True, foreach=None) if self._fused else {}
        # An optimizer of another origin may read more from its groups.
        merge = merge and type(optimizer).__module__.startswith('torch.optim')
        self._groups = MergedGroups(optimizer, overrides, merge)
        self._state_is_prepared = False
        optimizer.register_load_state_dict_post_hook(self._forget_state)

    def _forget_state(self, optimizer: Optimizer) -> None:
        self._state_is_prepared = False

    def scale_loss(self, loss: Tensor) -> Tensor:
        if self._accumulative_counts == 1:
            return loss
        return super().scale_loss(loss)

    @property
    def skipped_steps(self) -> int:
        """Steps left out since their gradient norm was not finite (reads)."""
        pending_of(self.message_hub).read()
        return self._skipped

    def step(self, **kwargs) -> None:
        """Clip, then step.

        Raises:
            RuntimeError: the norm is not finite and ``'raise'`` was asked.
        """
        params = [
            p for group in self.optimizer.param_groups
            for p in group['params'] if p.grad is not None
        ]
        if self._fused and not kwargs and match_layouts(params):
            self._fused_step(params)
            return
        norm = self._grad_norm(params)
        if norm is not None:
            # Without the kernel's help, skipping takes one read, as stock's
            # logging of the norm does.
            if not math.isfinite(norm.item()):
                return
            self._scale_grads(params, norm)
        if self._fused:
            # A closure or sparse gradients: as the user's groups say.
            self.optimizer.step(**kwargs)
        else:
            with self._groups.swapped_in():
                self.optimizer.step(**kwargs)

    def _grad_norm(self, params: list[Tensor]) -> Tensor | None:
        """The norm to clip by (0-d), or None; clips by value on its own."""
        if self._norm_args is None:
            if self.clip_grad_kwargs:
                self._clip_grad()
            return None
        grads = [p.grad for p in params if p.requires_grad]
        if not grads:
            return None
        norm = get_total_norm(grads, **self._norm_args)
        if self._raises and not math.isfinite(norm.item()):
            raise RuntimeError(
                f'the gradient norm is {norm.item()}. Lower the learning '
                'rate, look for bad samples, or let such steps be skipped '
                "with on_nonfinite='skip'")
        defer_scalar(self.message_hub, f'train/{self.grad_name}', norm,
                     self._count_skipped)
        return norm

    def _count_skipped(self, norms: list[float]) -> None:
        bad = [n for n in norms if not math.isfinite(n)]
        if not bad:
            return
        self._skipped += len(bad)
        # Not once a step, should all of them be bad.
        if self._skipped.bit_count() == 1:
            print_log(
                f'skipped {self._skipped} step(s) so far, since the gradient '
                f'norm was not finite (now {bad[-1]})',
                'current',
                level=logging.WARNING)

    def _scale_grads(self, params: list[Tensor], norm: Tensor) -> None:
        clip_grads_with_norm_([p for p in params if p.requires_grad],
                              self._max_norm, norm,
                              self._norm_args.get('foreach'))

    def _fused_step(self, params: list[Tensor]) -> None:
        optimizer = self.optimizer
        if not self._state_is_prepared:
            prepare_state(optimizer)
            self._state_is_prepared = True
        if type(optimizer) is SGD:
            prepare_momentum(optimizer)
        norm = self._grad_norm(params)
        if norm is not None:
            # The kernel divides by grad_scale and does nothing at found_inf.
            optimizer.found_inf = norm.sub(norm).ne_(0).float()
            if norm.dtype == torch.float32 and all(p.requires_grad
                                                   for p in params):
                optimizer.grad_scale = (norm + 1e-6).div_(
                    self._max_norm).clamp_(min=1)
            else:
                self._scale_grads(params, norm)
        try:
            with self._groups.swapped_in():
                optimizer.step()
        finally:
            optimizer.__dict__.pop('found_inf', None)
            optimizer.__dict__.pop('grad_scale', None)
