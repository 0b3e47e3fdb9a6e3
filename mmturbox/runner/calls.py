"""Functions that stock code calls, replaced while a turbo run is at work.

A config names types, and a pass can give it others; functions it does not
name. ``operator_calls = dict(<family>=True)`` in the planned config (the
passes of the operator families set it) makes :class:`TurboRunner` put our
functions in the place of stock ones for as long as it trains, validates or
tests, and take them out again, so that a stock run in the same process
stays stock.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

EXT = 'mmcv._ext'
_ABSENT = object()


@dataclass(frozen=True)
class Family:
    """The calls of one family of operators.

    Attributes:
        ext: functions of ``mmcv._ext``.
        calls: ``'package.module.function'`` or ``'package.module.Class.name'``
            of stock -> ``'package.module.function'`` of ours, which takes
            the stock function first and returns the replacement.
    """
    ext: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PATCHES = 'mmturbox.runner.call_patches.'
FAMILIES: dict[str, Family] = {
    'voxels':
    Family(
        _names('hard_voxelize_forward dynamic_voxelize_forward '
               'dynamic_point_to_voxel_forward '
               'dynamic_point_to_voxel_backward '
               'points_in_boxes_part_forward points_in_boxes_all_forward '
               'points_in_boxes_cpu_forward')),
    'nms':
    Family(
        _names('nms softnms nms_match nms_rotated box_iou_rotated '
               'iou3d_boxes_overlap_bev_forward iou3d_nms3d_forward '
               'iou3d_nms3d_normal_forward bbox_overlaps '
               'diff_iou_rotated_sort_vertices_forward')),
    'attention':
    Family(_names('ms_deform_attn_forward ms_deform_attn_backward')),
    'deform_conv':
    Family(
        _names('deform_conv_forward deform_conv_backward_input '
               'deform_conv_backward_parameters '
               'modulated_deform_conv_forward '
               'modulated_deform_conv_backward')),
    'sparse_conv':
    Family(
        _names('get_indice_pairs_2d_forward get_indice_pairs_3d_forward '
               'get_indice_pairs_2d_backward get_indice_pairs_3d_backward '
               'indice_conv_forward indice_conv_backward '
               'fused_indice_conv_forward indice_maxpool_forward '
               'indice_maxpool_backward')),
    'losses':
    Family(
        _names('sigmoid_focal_loss_forward sigmoid_focal_loss_backward '
               'softmax_focal_loss_forward softmax_focal_loss_backward')),
    'points':
    Family(
        _names('furthest_point_sampling_forward '
               'furthest_point_sampling_with_dist_forward '
               'ball_query_forward stack_ball_query_forward knn_forward '
               'gather_points_forward gather_points_backward '
               'group_points_forward group_points_backward '
               'stack_group_points_forward stack_group_points_backward '
               'three_nn_forward three_interpolate_forward '
               'three_interpolate_backward roiaware_pool3d_forward '
               'roiaware_pool3d_backward roipoint_pool3d_forward')),
    'roi_align':
    Family(
        _names('roi_align_forward roi_align_backward roi_pool_forward '
               'roi_pool_backward')),
    'small_matrix':
    Family(
        calls=(('torch.inverse', _PATCHES + 'inverse'),
               ('torch.linalg.inv', _PATCHES + 'inverse'),
               ('torch.Tensor.inverse', _PATCHES + 'inverse'))),
}


@dataclass(frozen=True)
class Patch:
    """One attribute of a module or class, and what takes its place."""
    owner: Any
    name: str
    new: Any


def _find(path: str) -> tuple[Any, str]:
    """Owner (a module or a class of one) and attribute name of ``path``."""
    head, name = path.rsplit('.', 1)
    module, _, kind = head.rpartition('.')
    if kind[:1].isupper():
        return getattr(importlib.import_module(module), kind), name
    return importlib.import_module(head), name


def _everywhere(owner: Any, name: str, stock: Any, new: Any) -> list[Patch]:
    """Patches for ``owner`` and every module that imported ``stock``."""
    owners = [owner]
    if not isinstance(owner, type):
        owners += [
            module for module in list(sys.modules.values())
            if module is not owner
            and getattr(module, '__dict__', {}).get(name) is stock
        ]
    return [Patch(one, name, new) for one in owners]


def _ext_patches(names: Iterable[str]) -> list[Patch]:
    from mmturbox.ops import mmcv_ext
    try:
        ext = importlib.import_module(EXT)
    except ImportError:
        return []
    if vars(ext).get('is_mmturbox'):
        return []
    provided = mmcv_ext.provided()
    return [Patch(ext, name, provided[name]) for name in names
            if name in provided]


def patches(family: str) -> list[Patch]:
    """What ``family`` would replace here: nothing where our function is in
    place anyway, as all of ``mmcv._ext`` is on mmcv-lite."""
    listed = FAMILIES[family]
    found = _ext_patches(listed.ext)
    for path, ours in listed.calls:
        try:
            owner, name = _find(path)
        except ImportError:
            continue
        stock = getattr(owner, name)
        make: Callable = getattr(*_find(ours))
        found += _everywhere(owner, name, stock, make(stock))
    return found


@contextlib.contextmanager
def in_place(families: Iterable[str]) -> Iterator[None]:
    """Our functions in the place of stock's, until the block ends."""
    undo = []
    try:
        for patch in [p for f in families for p in patches(f)]:
            undo.append((patch.owner, patch.name,
                         vars(patch.owner).get(patch.name, _ABSENT)))
            setattr(patch.owner, patch.name, patch.new)
        yield
    finally:
        for owner, name, old in reversed(undo):
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
