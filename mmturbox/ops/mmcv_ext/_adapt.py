"""What mmcv's Python around ``mmcv._ext`` gets wrong, put right.

None of this reaches ``_ext``, so a few functions are wrapped or replaced
right after their module is imported (``_finder.py`` sees to that), and only
where ``_ext`` is ours.
"""

import functools
import math
from collections.abc import Callable
from types import ModuleType

import torch

from .. import (
    furthest_point_sample,
    knn,
    nms3d,
    nms3d_normal,
    points_in_boxes_all,
    points_in_boxes_part,
)
from .boxes import batched_nms


def _on_cpu(*functions: Callable) -> Callable[[ModuleType], None]:
    """An adapter that lets functions of ours take CPU tensors.

    mmcv's of the same name ask for the current CUDA device or allocate on it
    first, which fails where torch has no CUDA.
    """

    def adapter(module: ModuleType) -> None:
        for ours in functions:
            stock = getattr(module, ours.__name__)

            def either(*args, stock=stock, ours=ours, **kwargs):
                tensor = next(value for value in (*args, *kwargs.values())
                              if isinstance(value, torch.Tensor))
                return (stock if tensor.is_cuda else ours)(*args, **kwargs)

            setattr(module, ours.__name__, functools.wraps(stock)(either))

    return adapter


def _carafe(module: ModuleType) -> None:
    """Go backward on every device: mmcv's naive form asks for CUDA there."""

    def backward(ctx, grad_output):
        features, masks = ctx.saved_tensors
        grads = torch.zeros_like(features), torch.zeros_like(masks)
        module.ext_module.carafe_naive_backward(
            grad_output.contiguous(), features, masks, *grads,
            ctx.kernel_size, ctx.group_size, ctx.scale_factor)
        return *grads, None, None, None

    module.CARAFENaiveFunction.backward = staticmethod(backward)


def _when_empty(name: str, function: Callable) -> Callable:
    """Answer for zero boxes, leave the rest to ``function``.

    Args:
        name: of the function's first parameter, the boxes.
        function: returns boxes with a score column, and their indices.
    """

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        boxes = args[0] if args else kwargs[name]
        if boxes.shape[0]:
            return function(*args, **kwargs)
        return (boxes.new_empty((0, boxes.shape[-1] + 1)),
                boxes.new_empty((0, ), dtype=torch.int64))

    return wrapper


def _nms(module: ModuleType) -> None:
    """Answer for zero boxes; keep classes apart without moving boxes.

    Of zero boxes, mmcv's ``batched_nms`` takes the maximum, which fails, and
    its ``nms_rotated`` returns None in place of the indices. It moves classes
    apart by adding to the coordinates, which costs them precision.
    """
    module.batched_nms = _when_empty('boxes', batched_nms(module.batched_nms))
    module.nms_rotated = _when_empty('dets', module.nms_rotated)


def _iou3d(module: ModuleType) -> None:
    """Order equal scores by their indices: mmcv's sort is not stable."""
    module.nms3d, module.nms3d_normal = nms3d, nms3d_normal


def _scatter_points(module: ModuleType) -> None:
    """Answer for zero points: mmcv reads the batch index of the last one."""
    stock = module.DynamicScatter.forward

    @functools.wraps(stock)
    def forward(self, points, coors):
        if coors.shape[0]:
            return stock(self, points, coors)
        return self.forward_single(points, coors)

    module.DynamicScatter.forward = forward


def _sparse_ops(module: ModuleType) -> None:
    """Take a spatial shape given as a tensor, as MinkUNet's is: numpy 2 does
    not multiply the sizes in one."""
    from mmcv.ops.sparse_structure import SparseConvTensor

    def spatial_size(self) -> int:
        return math.prod(int(size) for size in self.spatial_shape)

    def sparity(self) -> float:
        return len(self.indices) / self.spatial_size / self.batch_size

    SparseConvTensor.spatial_size = property(spatial_size)
    SparseConvTensor.sparity = property(sparity)


_ADAPTERS = {
    'mmcv.ops.carafe': _carafe,
    'mmcv.ops.furthest_point_sample': _on_cpu(furthest_point_sample),
    'mmcv.ops.iou3d': _iou3d,
    'mmcv.ops.knn': _on_cpu(knn),
    'mmcv.ops.nms': _nms,
    'mmcv.ops.points_in_boxes': _on_cpu(points_in_boxes_part,
                                        points_in_boxes_all),
    'mmcv.ops.scatter_points': _scatter_points,
    'mmcv.ops.sparse_ops': _sparse_ops,
}


def adapt(module: ModuleType) -> None:
    """Put a module of mmcv right, just after it was imported."""
    if getattr(module.ext_module, 'is_mmturbox', False):
        _ADAPTERS[module.__name__](module)
