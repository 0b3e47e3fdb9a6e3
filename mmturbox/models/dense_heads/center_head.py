"""CenterHead without reads and without loops over boxes."""

import logging
from typing import Any

import torch
from mmdet.models.losses import GaussianFocalLoss, L1Loss
from mmdet3d.models.dense_heads import CenterHead as StockCenterHead
from mmdet3d.models.dense_heads.centerpoint_head import SeparateHead
from mmengine.logging import print_log
from torch import Tensor

from mmturbox.models.layers.fused_branches import FusedBranches
from mmturbox.models.layers.hooked import hooked
from mmturbox.models.losses.gaussian_focal_loss import (
    GaussianFocalLoss as FusedGaussianFocalLoss,
)
from mmturbox.models.task_modules.center_targets import (
    CODE_SIZE,
    CenterTargets,
    Targets,
)
from mmturbox.ops import gaussian_focal_loss
from mmturbox.registry import MODELS

_HEAT_MAP_LOSSES = (GaussianFocalLoss, FusedGaussianFocalLoss)
_BOX_BRANCHES = ('reg', 'height', 'dim', 'rot', 'vel')


class PackedPredictions(tuple):
    """What stock's ``forward`` returns, with the tensor it is a view of.

    Attributes:
        packed: (B, T * 10 + C, H, W): the box codes of all tasks, then the
            heat maps of all classes (logits).
        parts: task, name and tensor of each view as handed out.
    """
    packed: Tensor
    parts: list[tuple[int, str, Tensor]]

    def untouched(self) -> bool:
        """Whether the dicts still hold the views of ``packed``: whoever
        replaces a prediction wants the loss of the new one."""
        return all(self[task][0].get(name) is part
                   for task, name, part in self.parts)


@MODELS.register_module()
class CenterHead(StockCenterHead):
    """mmdet3d's CenterHead: same arguments, parameters, outputs and losses.

    Targets are equal bit for bit. Losses and gradients are sums in another
    order. No value is read back in a training step.

    Note:
        Velocity targets that are NaN have no weight here; in stock, whose
        weight of zero does not undo a NaN, they make the loss NaN.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._build_targets = self._target_builder()
        self._layout = self._order_branches()
        self._branches = self._fuse()
        self._announced = False
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}
        for loss, fast in ((self.loss_cls, _HEAT_MAP_LOSSES),
                           (self.loss_bbox, (L1Loss, ))):
            if not _is_mean(loss, fast):
                _announce(f'{type(loss).__name__} with reduction '
                          f'{getattr(loss, "reduction", None)!r} is called '
                          'task by task')

    def _target_builder(self) -> CenterTargets | None:
        cfg = self.train_cfg
        if not cfg:
            return None
        return CenterTargets(
            num_classes=self.num_classes,
            grid_size=list(cfg['grid_size']),
            point_cloud_range=list(cfg['point_cloud_range']),
            voxel_size=list(cfg['voxel_size']),
            out_size_factor=cfg['out_size_factor'],
            max_objs=cfg['max_objs'] * cfg['dense_reg'],
            gaussian_overlap=cfg['gaussian_overlap'],
            min_radius=cfg['min_radius'],
            norm_bbox=self.norm_bbox)

    def _fuse(self) -> FusedBranches | None:
        heads = self.task_heads
        try:
            if any(type(head) is not SeparateHead for head in heads):
                raise ValueError('a task head is not a SeparateHead')
            return FusedBranches(
                [getattr(heads[task], name) for task, name in self._layout])
        except ValueError as reason:
            _announce(f'branches run one by one: {reason}')
            return None

    def _order_branches(self) -> list[tuple[int, str]]:
        """Task and name of the branches in the order of
        :class:`PackedPredictions`, then what heads have beyond them."""
        heads = [
            list(getattr(head, 'heads', ())) for head in self.task_heads
        ]
        boxes = [(task, name) for task, names in enumerate(heads)
                 for name in _BOX_BRANCHES if name in names]
        maps = [(task, 'heatmap') for task in range(len(heads))]
        known = {*_BOX_BRANCHES, 'heatmap'}
        rest = [(task, name) for task, names in enumerate(heads)
                for name in names if name not in known]
        return boxes + maps + rest

    def forward(self, feats: list[Tensor]) -> tuple[list[dict]]:
        """Predictions of each task and level, as in stock."""
        if len(feats) != 1 or not self._fits():
            return super().forward(feats)
        fused = self._branches
        out = fused(self.shared_conv(feats[0]))
        preds = [{} for _ in self.task_heads]
        parts = [(task, name, part) for (task, name), part in zip(
            self._layout, out.split(fused.widths, dim=1), strict=True)]
        for task, name, part in parts:
            preds[task][name] = part
        result = PackedPredictions([pred] for pred in preds)
        boxes = CODE_SIZE * len(preds)
        if all(pred.keys() >= {*_BOX_BRANCHES} for pred in preds):
            result.packed = out[:, :boxes + sum(self.num_classes)]
            result.parts = parts
        return result

    def _fits(self) -> bool:
        """Whether the fused branches do what the heads would."""
        fused, heads = self._branches, list(self.task_heads)
        if fused is None:
            return False
        reason = fused.why_not()
        if hooked(heads):
            reason = 'task heads have hooks'
        if [heads[t]._modules.get(name)
                for t, name in self._layout] != fused.branches:
            reason = 'branches were replaced'
        if reason and not self._announced:
            self._announced = True
            _announce(f'branches run one by one: {reason}')
        return reason is None and fused.one_mode()

    def get_targets(self, batch_gt_instances_3d: list) -> tuple[list[Tensor]]:
        """Heat maps, box codes, cells and masks of each task, as in stock."""
        targets = self._targets(batch_gt_instances_3d)
        return (list(targets.heatmaps.split(self.num_classes, dim=1)),
                list(targets.boxes), list(targets.cells), list(targets.masks))

    def _targets(self, instances: list) -> Targets:
        if self._build_targets is None:
            raise ValueError('CenterHead needs train_cfg to build targets')
        labels = [one.labels_3d for one in instances]
        boxes = [
            _bottom_centered(one.bboxes_3d).to(label.device)
            for one, label in zip(instances, labels, strict=True)
        ]
        return self._build_targets(boxes, labels)

    def loss_by_feat(self, preds_dicts: tuple[list[dict]],
                     batch_gt_instances_3d: list, *args: Any,
                     **kwargs: Any) -> dict[str, Tensor]:
        """Losses by ``task{i}.loss_heatmap`` and ``task{i}.loss_bbox``."""
        targets = self._targets(batch_gt_instances_3d)
        if hasattr(preds_dicts, 'packed') and preds_dicts.untouched():
            packed = preds_dicts.packed
        else:
            packed = _pack([levels[0] for levels in preds_dicts])
        boxes = CODE_SIZE * len(self.num_classes)
        of_maps = self._heatmap_losses(packed[:, boxes:], targets)
        of_boxes = self._box_losses(packed[:, :boxes], targets)
        losses = {}
        for task, (one, other) in enumerate(
                zip(of_maps, of_boxes, strict=True)):
            losses[f'task{task}.loss_heatmap'] = one
            losses[f'task{task}.loss_bbox'] = other
        return losses

    def _heatmap_losses(self, logits: Tensor,
                        targets: Targets) -> tuple[Tensor]:
        """Focal loss of each task from (B, C, H, W) logits."""
        loss, heatmaps = self.loss_cls, targets.heatmaps
        of_task, _ = self._on(logits.device)
        pred = logits.sigmoid().clamp(min=1e-4, max=1 - 1e-4)
        peaks = heatmaps.eq(1).sum((0, 2, 3))
        peaks = (of_task * peaks).sum(1).clamp(min=1)
        if not _is_mean(loss, _HEAT_MAP_LOSSES):
            return tuple(
                loss(one, target, avg_factor=count)
                for one, target, count in zip(
                    pred.split(self.num_classes, 1),
                    heatmaps.split(self.num_classes, 1),
                    peaks.unbind(),
                    strict=True))
        cells = gaussian_focal_loss(
            pred,
            heatmaps,
            alpha=loss.alpha,
            gamma=loss.gamma,
            pos_weight=loss.pos_weight,
            neg_weight=loss.neg_weight,
            reduction='none')
        sums = (of_task * cells.sum((0, 2, 3))).sum(1)
        return _scaled(loss, sums, peaks)

    def _box_losses(self, packed: Tensor, targets: Targets) -> tuple[Tensor]:
        """L1 loss of each task from (B, T * 10, H, W) codes."""
        loss = self.loss_bbox
        num_tasks, num_samples, num_slots = targets.cells.shape
        _, weight = self._on(packed.device)
        # All in (B, T, 10, M), the order of the predictions.
        cells = targets.cells.transpose(0, 1).unsqueeze(2)
        pred = packed.reshape(num_samples, num_tasks, CODE_SIZE, -1)
        pred = pred.gather(3, cells.expand(-1, -1, CODE_SIZE, -1))
        target = targets.boxes.permute(1, 0, 3, 2)
        mask = targets.masks.transpose(0, 1).unsqueeze(2)
        weight = ~target.isnan() * mask * weight
        target = target.nan_to_num(
            nan=0., posinf=float('inf'), neginf=-float('inf'))
        count = targets.masks.sum((1, 2)) + 1e-4
        if not _is_mean(loss, (L1Loss, )):
            return tuple(
                loss(
                    pred[:, t].transpose(1, 2),
                    target[:, t].transpose(1, 2),
                    weight[:, t].transpose(1, 2),
                    avg_factor=count[t]) for t in range(num_tasks))
        sums = ((pred - target).abs() * weight).sum((0, 2, 3))
        return _scaled(loss, sums, count)

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(T, C) float32, 1 where a class belongs to a task, and (10, 1)
        float32, the weight of each value of a code."""
        if device not in self._constants:
            # Made under inference mode they could not be saved for backward.
            with torch.inference_mode(False):
                rows = torch.eye(len(self.num_classes)).repeat_interleave(
                    torch.tensor(self.num_classes), dim=1)
                weight = torch.tensor(self.train_cfg['code_weights'])[:, None]
                self._constants[device] = rows.to(device), weight.to(device)
        return self._constants[device]


def _announce(text: str) -> None:
    print_log(
        f'mmturbox.CenterHead: {text}', logger='current', level=logging.INFO)


def _is_mean(loss: Any, kinds: tuple[type, ...]) -> bool:
    return type(loss) in kinds and loss.reduction == 'mean'


def _scaled(loss: Any, sums: Tensor, counts: Tensor) -> tuple[Tensor]:
    """mmdet's mean over ``counts`` of each task."""
    eps = torch.finfo(torch.float32).eps
    return (loss.loss_weight * (sums / (counts + eps))).unbind()


def _pack(preds: list[dict]) -> Tensor:
    """(B, T * 10 + C, H, W) from one dict a task."""
    boxes = [pred[name] for pred in preds for name in _BOX_BRANCHES]
    return torch.cat([*boxes, *(pred['heatmap'] for pred in preds)], dim=1)


def _bottom_centered(boxes: Any) -> Tensor:
    """(n, 9) rows whose centre is the bottom's, as in the lidar frame."""
    from mmdet3d.structures import BaseInstance3DBoxes
    if type(boxes).gravity_center is BaseInstance3DBoxes.gravity_center:
        return boxes.tensor
    raise ValueError(
        f'CenterHead needs boxes in the lidar or depth frame, got '
        f'{type(boxes).__name__}')
