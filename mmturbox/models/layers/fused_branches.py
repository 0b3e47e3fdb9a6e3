"""Many small convolution branches over one input, evaluated together.

A branch is ``conv -> batch norm -> ReLU -> conv``, as in the heads of
CenterPoint, where six tasks of six branches make some two hundred launches
forward and more backward. Here the first convolutions run as one, the norms
as one, and the last convolutions as one batched product per offset of the
kernel (their few output channels each make a grouped convolution slow).
Parameters and buffers stay in the branches' modules.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .hooked import hooked

# Hidden maps that a CPU computes at a time: beyond its caches, one large
# batch norm is slower than several small ones.
_CPU_BYTES = 4 << 20


class FusedBranches:
    """Evaluates branches that share their input, hidden width and kernel.

    Args:
        branches: each a pair of an ``mmcv.cnn.ConvModule`` (convolution,
            batch norm, ReLU) and a ``nn.Conv2d``.

    Raises:
        ValueError: with the reason where the branches cannot be fused.
    """

    def __init__(self, branches: Sequence[nn.Sequential]) -> None:
        for branch in branches:
            _check(branch)
        self.branches = list(branches)
        self.firsts = [branch[0].conv for branch in branches]
        self.norms = [branch[0].norm for branch in branches]
        self.lasts = [branch[1] for branch in branches]
        self._seen = self._now()
        for kind, modules in (('first', self.firsts), ('norm', self.norms),
                              ('last', self.lasts)):
            if len({_settings(module) for module in modules}) != 1:
                raise ValueError(f'the {kind} layers have unlike settings')
        self.widths = [last.out_channels for last in self.lasts]
        self._rows: dict[tuple, tuple[Tensor, Tensor]] = {}

    def _now(self) -> list[nn.Module]:
        """The branches and all that is in them at the moment."""
        found = []
        for branch in self.branches:
            found.append(branch)
            # Quicker than branch[0], which is looked up at each step.
            for child in branch._modules.values():
                found += child, *child._modules.values()
        return found

    def why_not(self) -> str | None:
        """Why the branches have to run one by one from now on, or None: they
        hold other layers than at the start (a conversion to SyncBatchNorm
        replaces them), or somebody hooked them."""
        if self._now() != self._seen:
            return 'layers were replaced'
        return 'layers have hooks' if hooked(self._seen) else None

    def one_mode(self) -> bool:
        """Whether the norms are all in training or all in evaluation."""
        return len({norm.training for norm in self.norms}) == 1

    @property
    def ready(self) -> bool:
        """Whether the branches can be run together now."""
        return self.why_not() is None and self.one_mode()

    def __call__(self, x: Tensor) -> Tensor:
        """All branches' outputs along the channels, in order.

        Args:
            x: (B, in_channels, H, W).

        Returns:
            (B, sum of the branches' output channels, H, W).

        Note:
            Equal to the branches one by one up to the order of sums; running
            statistics are updated likewise.
        """
        outs = [self._run(x, part) for part in self._parts(x)]
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)

    def _parts(self, x: Tensor) -> list[slice]:
        """Branches to be run together."""
        num, parts = len(self.branches), 1
        if x.device.type == 'cpu':
            hidden = x.numel() // x.shape[1] * self.firsts[0].out_channels
            size = num * hidden * x.element_size()
            parts = min(num, math.ceil(size / _CPU_BYTES)) or 1
        cuts = [num * i // parts for i in range(parts + 1)]
        return list(map(slice, cuts[:-1], cuts[1:]))

    def _run(self, x: Tensor, part: slice) -> Tensor:
        firsts = self.firsts[part]
        weight = torch.cat([conv.weight for conv in firsts])
        bias = None
        if firsts[0].bias is not None:
            bias = torch.cat([conv.bias for conv in firsts])
        hidden = F.conv2d(x, weight, bias, padding=firsts[0].padding)
        return self._last(_norm(self.norms[part], hidden).relu_(), part)

    def _last(self, hidden: Tensor, part: slice) -> Tensor:
        """The last convolutions: a product for each offset of the kernel,
        then the sum of the shifted results."""
        batch, _, height, width = hidden.shape
        lasts = self.lasts[part]
        padded, used = self._indices(part, hidden.device)
        weight = torch.cat([conv.weight for conv in lasts])
        # A row of zeros stands in for the outputs that a branch lacks.
        weight = F.pad(weight, (0, 0) * 3 + (0, 1))[padded]
        # (num, outputs, in, kh, kw) -> (num, outputs * kh * kw, in). A
        # convolution is the correlation with the offsets turned around.
        weight = weight.flip(3, 4).permute(0, 1, 3, 4, 2).flatten(1, 3)
        parts = hidden.reshape(batch, len(lasts), -1, height * width)
        out = F.fold(
            (weight @ parts).flatten(1, 2), (height, width),
            lasts[0].kernel_size,
            padding=lasts[0].padding)
        # Autocast casts the products and leaves the sum alone.
        bias = torch.cat([conv.bias for conv in lasts]).to(out.dtype)
        return out.index_select(1, used) + bias[:, None, None]

    def _indices(self, part: slice,
                 device: torch.device) -> tuple[Tensor, Tensor]:
        """(num, most) rows of the stacked last weights, the row after them
        where a branch has fewer outputs than the widest; and the places of
        the real outputs among num * most."""
        key = (part.start, part.stop, device)
        if key not in self._rows:
            # Made under inference mode they could not be saved for backward.
            with torch.inference_mode(False):
                self._rows[key] = _output_rows(self.widths[part], device)
        return self._rows[key]


def _output_rows(widths: list[int],
                 device: torch.device) -> tuple[Tensor, Tensor]:
    padded = torch.full((len(widths), max(widths)), sum(widths))
    row = 0
    for i, width in enumerate(widths):
        padded[i, :width] = torch.arange(row, row + width)
        row += width
    used = torch.where(padded.flatten() < sum(widths))[0]
    return padded.to(device), used.to(device)


def _norm(norms: list[nn.BatchNorm2d], hidden: Tensor) -> Tensor:
    """Batch norm of all branches' channels; updates their statistics."""
    one = norms[0]
    mean = torch.cat([norm.running_mean for norm in norms])
    var = torch.cat([norm.running_var for norm in norms])
    hidden = F.batch_norm(hidden, mean, var,
                          torch.cat([norm.weight for norm in norms]),
                          torch.cat([norm.bias for norm in norms]),
                          one.training, one.momentum, one.eps)
    if one.training:
        with torch.no_grad():
            torch._foreach_copy_([norm.running_mean for norm in norms],
                                 list(mean.split(one.num_features)))
            torch._foreach_copy_([norm.running_var for norm in norms],
                                 list(var.split(one.num_features)))
            torch._foreach_add_([norm.num_batches_tracked for norm in norms],
                                1)
    return hidden


def _settings(module: nn.Module) -> tuple:
    if isinstance(module, nn.BatchNorm2d):
        return (module.num_features, module.eps, module.momentum)
    return (module.in_channels, module.kernel_size, module.padding,
            module.bias is None)


def _check(branch: nn.Module) -> None:
    """Raise ValueError where a branch is not conv, norm, ReLU, conv."""
    from mmcv.cnn import ConvModule
    if type(branch) is not nn.Sequential or len(branch) != 2 or type(
            branch[0]) is not ConvModule:
        raise ValueError('a branch is not a ConvModule and a convolution')
    block, last = branch
    if not (block.order == ('conv', 'norm', 'act') and block.with_norm
            and block.with_activation and type(block.activate) is nn.ReLU
            and not block.with_explicit_padding
            and not block.with_spectral_norm):
        raise ValueError('a branch does not start with conv, norm, ReLU')
    norm = block.norm
    if type(norm) is not nn.BatchNorm2d:
        raise ValueError(f'the norm is {type(norm).__name__}, not BatchNorm2d')
    if not norm.affine or norm.running_mean is None or norm.momentum is None:
        raise ValueError('a norm lacks weights, running statistics or '
                         'momentum')
    for conv in (block.conv, last):
        if type(conv) is not nn.Conv2d:
            raise ValueError(
                f'a convolution is {type(conv).__name__}, not Conv2d')
        same = tuple((k - 1) // 2 for k in conv.kernel_size)
        if not (conv.stride == conv.dilation == (1, 1) and conv.groups == 1
                and conv.padding_mode == 'zeros' and conv.padding == same
                and all(k % 2 for k in conv.kernel_size)):
            raise ValueError('a convolution is strided, dilated, grouped or '
                             'changes the size of the map')
    if last.bias is None:
        raise ValueError('a last convolution has no bias')
