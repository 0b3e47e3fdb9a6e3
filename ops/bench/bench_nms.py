"""Suppression and rotated overlap, against what mmcv's CPU kernels do.

The stock side stands in ``baselines_nms.cpp``; circle suppression is
mmdet3d's own numba function.
"""

import ctypes
from collections.abc import Callable, Iterator

import torch
from harness import Case, Skipped, baselines
from torch import Tensor

from mmturbox.ops import (
    box_iou_rotated,
    circle_nms,
    multiclass_nms,
    nms,
    nms_rotated,
)


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _stock_nms(function: Callable, boxes: Tensor, scores: Tensor,
               threshold: float) -> Tensor:
    keep = torch.empty(len(boxes), dtype=torch.int64)
    count = function(
        _pointer(boxes), _pointer(scores), ctypes.c_int64(len(boxes)),
        ctypes.c_float(threshold), _pointer(keep))
    return keep[:count]


def _assert_alike(stock: Tensor, turbo: Tensor) -> None:
    """Nearly all the same boxes: the stock overlap has tolerances."""
    common = len(set(stock.tolist()) & set(turbo.tolist()))
    assert common >= 0.99 * max(len(stock), len(turbo)), (
        f'{common} common boxes of {len(stock)} and {len(turbo)}')


def _aligned(number: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes in an image of 1600 x 900, scores, classes of ten."""
    generator = torch.Generator().manual_seed(seed)
    centre, size = torch.rand(2, number, 2, generator=generator)
    centre = centre * torch.tensor([1600., 900])
    size = 20 + size * 180
    return (torch.cat([centre - size / 2, centre + size / 2], 1),
            torch.rand(number, generator=generator),
            torch.randint(10, (number, ), generator=generator))


def _rotated(number: int, span: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cars and larger, turned, on a square of ``span`` metres."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(number, 5, generator=generator)
    low = torch.tensor([-span / 2, -span / 2, 1.5, 0.5, -3.2])
    high = torch.tensor([span / 2, span / 2, 12, 3, 3.2])
    return low + boxes * (high - low), torch.rand(number, generator=generator)


def _nms_cases(stock: ctypes.CDLL) -> Iterator[Case]:
    boxes, scores, classes = _aligned(10000)
    moved = boxes + classes[:, None] * (boxes.max() + 1)

    def run_stock() -> Tensor:
        return _stock_nms(stock.stock_nms, moved, scores, 0.5)

    def run_turbo() -> Tensor:
        return multiclass_nms(boxes, scores, 0.5, classes)

    yield Case(
        'NMS 10,000 boxes, 10 classes', run_stock, run_turbo, 5.0,
        check=lambda: _assert_alike(run_stock(), run_turbo()))
    yield Case(
        'NMS 10,000 boxes, one class',
        lambda: _stock_nms(stock.stock_nms, boxes, scores, 0.5),
        lambda: nms(boxes, scores, 0.5))
    turned, scores5 = _rotated(5000, 108)

    def rotated_stock() -> Tensor:
        return _stock_nms(stock.stock_nms_rotated, turned, scores5, 0.2)

    yield Case(
        'rotated NMS, 5,000 boxes', rotated_stock,
        lambda: nms_rotated(turned, scores5, 0.2), 10.0,
        check=lambda: _assert_alike(rotated_stock(),
                                    nms_rotated(turned, scores5, 0.2)))


def _iou_case(stock: ctypes.CDLL) -> Case:
    """All boxes near each other, so that no pair is settled early."""
    boxes1, boxes2 = _rotated(2000, 6)[0], _rotated(200, 6, 1)[0]

    def run_stock() -> Tensor:
        out = torch.empty(2000, 200)
        stock.stock_box_iou_rotated(
            _pointer(boxes1), _pointer(boxes2), ctypes.c_int64(2000),
            ctypes.c_int64(200), _pointer(out))
        return out

    def check() -> None:
        difference = (run_stock() - box_iou_rotated(boxes1, boxes2)).abs()
        assert (difference < 1e-3).float().mean() > 0.999

    return Case('rotated IoU 2,000 x 200', run_stock,
                lambda: box_iou_rotated(boxes1, boxes2), 5.0, check=check)


def _circle_case() -> Case | Skipped:
    name = 'circle NMS, 500 centres'
    try:
        from mmdet3d.models.layers import circle_nms as stock
    except ImportError as error:
        return Skipped(name, f'mmdet3d is not importable: {error}')
    boxes, scores = _rotated(500, 108)
    dets = torch.cat([boxes[:, :2], scores[:, None]], 1)

    def run_stock() -> Tensor:
        return torch.tensor(stock(dets.numpy(), 4., 83), dtype=torch.int64)

    def run_turbo() -> Tensor:
        return circle_nms(boxes[:, :2], scores, 4., 83)

    def check() -> None:
        assert torch.equal(run_stock(), run_turbo())

    return Case(name, run_stock, run_turbo, check=check)


def cases() -> Iterator[Case | Skipped]:
    stock = baselines('nms')
    stock.stock_nms.restype = ctypes.c_int64
    stock.stock_nms_rotated.restype = ctypes.c_int64
    yield from _nms_cases(stock)
    yield _iou_case(stock)
    yield _circle_case()
