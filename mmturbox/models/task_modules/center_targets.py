"""CenterPoint's training targets for all boxes of a batch at once.

Definition: mmdet3d's ``CenterHead.get_targets_single``, which walks the boxes
in Python. Every expression here keeps upstream's operands and order, so that
targets are equal bit for bit on the same device; nothing is read back.

Legend: N boxes of the batch, B samples, T tasks, C classes, M slots a task,
lidar frame (x, y, z up), lengths in metres.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmturbox.ops.draw_gaussians import draw_box_gaussians

CODE_SIZE = 10
"""x and y offset, z, three (log) sizes, sine and cosine of yaw, x and y
velocity."""


class Targets(NamedTuple):
    """Targets of all tasks.

    Attributes:
        heatmaps: (B, C, H, W) float32; classes in the order of the tasks.
        boxes: (T, B, M, 10) float32.
        cells: (T, B, M) int64, ``y * W + x`` of each slot's box.
        masks: (T, B, M) uint8, 1 where a slot holds a box.
    """
    heatmaps: Tensor
    boxes: Tensor
    cells: Tensor
    masks: Tensor


@dataclass
class CenterTargets:
    """Builds :class:`Targets`; settings as in CenterHead's ``train_cfg``.

    Attributes:
        num_classes: classes of each task; labels count through the tasks.
        grid_size: cells in x and y before the backbone.
        point_cloud_range: its first two values are used.
        voxel_size: its first two values are used.
        out_size_factor: stride of the heat map.
        max_objs: M; boxes of a task above it are dropped.
        gaussian_overlap, min_radius: of the Gaussians.
        norm_bbox: whether sizes are targets as logarithms.
    """
    num_classes: list[int]
    grid_size: list[int]
    point_cloud_range: list[float]
    voxel_size: list[float]
    out_size_factor: int
    max_objs: int
    gaussian_overlap: float
    min_radius: int
    norm_bbox: bool = True
    _tables: dict = field(default_factory=dict, repr=False)

    @property
    def map_size(self) -> tuple[int, int]:
        """Width and height of the heat map in cells."""
        return (self.grid_size[0] // self.out_size_factor,
                self.grid_size[1] // self.out_size_factor)

    def __call__(self, boxes: list[Tensor], labels: list[Tensor]) -> Targets:
        """Targets of a batch.

        Args:
            boxes: for each sample (n, 9) float32: bottom centre, sizes, yaw
                (radians), velocity (m/s, may be NaN), on the labels' device.
            labels: for each sample (n,) int64; others than 0 .. C - 1 are
                left out.

        Raises:
            ValueError: where boxes do not have nine columns.

        Note:
            A box of infinite size, with which upstream stops, is drawn with
            ``min_radius`` or as large as the map.
        """
        device = labels[0].device
        num_samples, num_tasks = len(labels), len(self.num_classes)
        shape = (num_tasks, num_samples, self.max_objs)
        # One slot more than there are takes what is dropped.
        slots = num_tasks * num_samples * self.max_objs
        codes = torch.zeros(slots + 1, CODE_SIZE, device=device)
        cells = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        masks = torch.zeros(slots + 1, dtype=torch.uint8, device=device)
        width, height = self.map_size
        planes = num_samples * sum(self.num_classes)
        if sum(map(len, labels)):
            rows, key = self._sorted(boxes, labels)
            center, size, inside = self._locate(rows)
            peak = center.to(torch.int32)
            slot, plane = self._assign(key, inside, num_samples, slots)
            codes.index_copy_(0, slot, self._encode(rows, center - peak))
            cell = peak[:, 1] * width + peak[:, 0]
            cells.index_copy_(0, slot, cell.long())
            masks.index_fill_(0, slot, 1)
            maps = draw_box_gaussians(plane, peak, size, planes, height, width,
                                      self.gaussian_overlap, self.min_radius)
        else:
            maps = torch.zeros(planes, height, width, device=device)
        return Targets(
            maps.view(num_samples, -1, height, width),
            codes[:-1].view(*shape, CODE_SIZE), cells[:-1].view(shape),
            masks[:-1].view(shape))

    def _sorted(self, boxes: list[Tensor],
                labels: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Boxes by sample and label, in the order given within a label.

        Returns:
            (N, 9) boxes and (N,) int64 keys, ``sample * (C + 1) + label``,
            where label C stands for labels that are no class.
        """
        rows, label = torch.cat(boxes), torch.cat(labels)
        if rows.shape[1] != CODE_SIZE - 1:
            raise ValueError(
                'CenterHead needs boxes with velocity, (n, 9), got '
                f'(n, {rows.shape[1]}); load them with with_velocity=True')
        total = sum(self.num_classes)
        counts = [len(one) for one in labels]
        first = np.repeat(np.arange(len(labels)) * (total + 1), counts)
        first = torch.from_numpy(first).to(label.device, non_blocking=True)
        known = (label >= 0) & (label < total)
        key, order = torch.sort(
            torch.where(known, label, total) + first, stable=True)
        return rows[order], key

    def _locate(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centres (N, 2) and widths and lengths (N, 2), float32 in cells, and
        whether a box has a size and its peak lies on the map."""
        origin, scale, size = self._constants(rows.device)
        columns = rows[:, :5] - origin
        # See _constants: upstream's CUDA division is a multiplication.
        columns = columns * scale if rows.is_cuda else columns / scale
        columns = columns / self.out_size_factor
        center, extent = columns[:, :2], columns[:, 3:]
        peak = center.to(torch.int32)
        inside = ((peak >= 0) & (peak < size) & (extent > 0)).all(1)
        return center, extent.flip(1), inside

    def _assign(self, key: Tensor, inside: Tensor, num_samples: int,
                dropped: int) -> tuple[Tensor, Tensor]:
        """Slot and plane (N,) int64 of each box; ``dropped`` and -1 where it
        has none. A box that is not on the map keeps its slot empty."""
        lookup = self._lookup(num_samples, key.device)
        group, first, limit, plane = lookup[:, key].unbind()
        rank = torch.arange(len(key), device=key.device)
        rank = rank - torch.searchsorted(group, group)
        kept = inside & (rank < limit)
        return (torch.where(kept, first + rank,
                            dropped), torch.where(kept, plane, -1))

    def _encode(self, rows: Tensor, offset: Tensor) -> Tensor:
        """(N, 10) codes."""
        center_z = torch.add(rows[:, 2], rows[:, 5], alpha=0.5)
        sizes = rows[:, 3:6].log() if self.norm_bbox else rows[:, 3:6]
        yaw = rows[:, 6:7]
        return torch.cat((offset, center_z[:, None], sizes, yaw.sin(),
                          yaw.cos(), rows[:, 7:]), 1)

    def _lookup(self, num_samples: int, device: torch.device) -> Tensor:
        """(4, B * (C + 1)) int64, by key: the group of boxes that share
        slots, its first slot, its number of slots, the plane."""
        cached = self._tables.get((num_samples, device))
        if cached is not None:
            return cached
        total, num_tasks = sum(self.num_classes), len(self.num_classes)
        task = np.repeat(np.arange(num_tasks), self.num_classes)
        table = np.full((4, num_samples, total + 1), -1, dtype=np.int64)
        sample = np.arange(num_samples)[:, None]
        group = np.append(task, num_tasks) + sample * (num_tasks + 1)
        table[0] = group
        table[1, :, :total] = (task * num_samples + sample) * self.max_objs
        table[2] = 0
        table[2, :, :total] = self.max_objs
        table[3, :, :total] = np.arange(total) + sample * total
        # Tables outlive the mode in which they are made.
        with torch.inference_mode(False):
            table = torch.from_numpy(table.reshape(4, -1)).to(device)
        self._tables[num_samples, device] = table
        return table

    def _constants(self, device: torch.device) -> tuple[Tensor, ...]:
        """Origin and cell size for the columns x, y, z, length, width, and
        the size of the map."""
        cached = self._tables.get(device)
        if cached is None:
            with torch.inference_mode(False):
                cached = self._make_constants(device)
            self._tables[device] = cached
        return cached

    def _make_constants(self, device: torch.device) -> tuple[Tensor, ...]:
        (x, y), (vx, vy) = self.point_cloud_range[:2], self.voxel_size[:2]
        cached = (torch.tensor([x, y, 0., 0., 0.]).to(device),
                  torch.tensor([vx, vy, 1., vx, vy]).to(device),
                  torch.tensor(self.map_size, dtype=torch.int32).to(device))
        if device.type == 'cuda':
            # Upstream divides by a host scalar, and CUDA kernels then
            # multiply by its reciprocal.
            cached = (cached[0], 1 / cached[1], cached[2])
        return cached
