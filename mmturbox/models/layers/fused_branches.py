"""Many small convolution branches over one input, evaluated together.

A branch is ``conv -> batch norm -> ReLU -> conv``, as in the heads of
CenterPoint, where six tasks of six branches make some two hundred launches
forward and more backward. Here the first convolutions run as one, the norms
as one, and the last convolutions as one batched product per offset of the
kernel (their few output channels each make a grouped convolution slow).
Parameters and buffers stay in the branches' modules.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
        self.firsts, self.norms, self.lasts = self._layers()
        for kind, modules in (('first', self.firsts), ('norm', self.norms),
                              ('last', self.lasts)):
            if len({_settings(module) for module in modules}) != 1:
                raise ValueError(f'the {kind} layers have unlike settings')
        self.widths = [last.out_channels for last in self.lasts]
        self._index: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def _layers(self) -> tuple[list, list, list]:
        return ([branch[0].conv for branch in self.branches],
                [branch[0].norm for branch in self.branches],
                [branch[1] for branch in self.branches])

    @property
    def ready(self) -> bool:
        """Whether the branches still hold the layers seen at the start (a
        conversion to SyncBatchNorm replaces them) and their norms are all in
        training or all in evaluation."""
        return (self._layers() == (self.firsts, self.norms, self.lasts)
                and len({norm.training for norm in self.norms}) == 1)

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
        first = self.firsts[0]
        weight = torch.cat([conv.weight for conv in self.firsts])
        bias = None
        if first.bias is not None:
            bias = torch.cat([conv.bias for conv in self.firsts])
        hidden = F.conv2d(x, weight, bias, padding=first.padding)
        return self._last(F.relu_(self._norm(hidden)))

    def _norm(self, hidden: Tensor) -> Tensor:
        norms, norm = self.norms, self.norms[0]
        mean = torch.cat([one.running_mean for one in norms])
        var = torch.cat([one.running_var for one in norms])
        hidden = F.batch_norm(
            hidden, mean, var, torch.cat([one.weight for one in norms]),
            torch.cat([one.bias for one in norms]), norm.training,
            norm.momentum, norm.eps)
        if norm.training:
            with torch.no_grad():
                width = norm.num_features
                torch._foreach_copy_([one.running_mean for one in norms],
                                     list(mean.split(width)))
                torch._foreach_copy_([one.running_var for one in norms],
                                     list(var.split(width)))
                torch._foreach_add_([one.num_batches_tracked for one in norms],
                                    1)
        return hidden

    def _last(self, hidden: Tensor) -> Tensor:
        """The last convolutions: a product for each offset of the kernel,
        then the sum of the shifted results."""
        batch, channels, height, width = hidden.shape
        last = self.lasts[0]
        num, size = len(self.lasts), last.kernel_size
        padded, used = self._indices(hidden.device)
        weight = torch.cat([conv.weight for conv in self.lasts])
        # A row of zeros stands in for the outputs that a branch lacks.
        weight = F.pad(weight, (0, 0) * 3 + (0, 1))[padded]
        # (num, outputs, in, kh, kw) -> (num, outputs * kh * kw, in). A
        # convolution is the correlation with the offsets turned around.
        weight = weight.flip(3, 4).permute(0, 1, 3, 4, 2).flatten(1, 3)
        parts = weight @ hidden.view(batch, num, -1, height * width)
        out = F.fold(
            parts.flatten(1, 2), (height, width), size, padding=last.padding)
        bias = torch.cat([conv.bias for conv in self.lasts])
        return out.index_select(1, used) + bias[:, None, None]

    def _indices(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(num, most) rows of the stacked last weights, the row after them
        where a branch has fewer outputs than the widest; and the places of
        the real outputs among num * most."""
        if device not in self._index:
            most, total = max(self.widths), sum(self.widths)
            padded = torch.full((len(self.widths), most), total)
            row = 0
            for i, width in enumerate(self.widths):
                padded[i, :width] = torch.arange(row, row + width)
                row += width
            used = torch.where(padded.flatten() < total)[0]
            self._index[device] = padded.to(device), used.to(device)
        return self._index[device]


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
