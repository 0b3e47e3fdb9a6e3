"""Focal losses with weights and normaliser, forward and backward.

Stock is mmdet's Python form, as its FocalLoss runs it where mmcv has no
kernel. Shapes: six decoder layers of 900 queries and 10 classes (DETR3D,
BEVFormer, Sparse4D); 76,800 anchors and 80 classes (dense heads); heat maps of
CenterPoint, batch 4.
"""

from collections.abc import Callable, Iterator

import torch
from harness import Case
from torch import Tensor

from mmturbox.ops import gaussian_focal_loss, sigmoid_focal_loss_fused


def _step(loss: Callable[[Tensor], Tensor], pred: Tensor) -> Callable:

    def run() -> tuple[Tensor, Tensor]:
        out = loss(pred)
        return out, torch.autograd.grad(out, pred)[0]

    return run


def _assert_close(stock: Callable, turbo: Callable) -> Callable[[], None]:

    def check() -> None:
        for one, other in zip(stock(), turbo(), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-7)

    return check


def _case(name: str, stock: Callable, turbo: Callable, pred: Tensor,
          target: float | None = 3.0) -> Case:
    pred.requires_grad_()
    runs = _step(stock, pred), _step(turbo, pred)
    return Case(name, *runs, target=target, check=_assert_close(*runs))


def _sigmoid(rows: int, classes: int, labels: bool,
             device: str) -> Case:
    from mmdet.models.losses.focal_loss import py_sigmoid_focal_loss
    pred = torch.randn(rows, classes, device=device)
    target = torch.randint(0, classes + 1, (rows, ), device=device)
    weight = torch.rand(rows, device=device)

    def one_hot() -> Tensor:
        hot = torch.nn.functional.one_hot(target, classes + 1)
        return hot[:, :classes]

    dense = one_hot().float()
    return _case(
        f'sigmoid focal forward+backward with weights, {rows} x {classes}, '
        f'{"labels" if labels else "dense"}',
        lambda x: py_sigmoid_focal_loss(
            x, one_hot() if labels else dense, weight, avg_factor=33.0),
        lambda x: sigmoid_focal_loss_fused(
            x, target if labels else dense, weight, avg_factor=33.0), pred)


def _gaussian(device: str) -> Case:
    from mmdet.models.losses.gaussian_focal_loss import (
        gaussian_focal_loss as stock,
    )
    shape = (4, 10, 128, 128)
    pred = torch.rand(shape, device=device).clamp(1e-4, 1 - 1e-4)
    target = (torch.rand(shape, device=device) * 1.001).clamp(max=1)
    return _case('Gaussian focal forward+backward, 4 x 10 x 128 x 128',
                 lambda x: stock(x, target, avg_factor=33.0),
                 lambda x: gaussian_focal_loss(x, target, avg_factor=33.0),
                 pred, target=None)


def cases(device: str = 'cpu') -> Iterator[Case]:
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    torch.manual_seed(0)
    for rows, classes in ((5400, 10), (76800, 80)):
        for labels in (True, False):
            yield _sigmoid(rows, classes, labels, device)
    yield _gaussian(device)
