"""RoI align, and heat maps.

RoI align is measured against mmcv's CPU algorithm, sequential
(``baselines_images.cpp``), on the maps of a 800 x 1344 image; heat maps
against mmdet3d's loop over boxes, as CenterHead runs it.
"""

import ctypes
from collections.abc import Iterator

import torch
from harness import Case, baselines
from torch import Tensor

from mmturbox.ops import draw_box_gaussians, roi_align


def _roi_align(library: ctypes.CDLL, stride: int, ratio: int,
               target: float | None) -> Case:
    channels, height, width = 256, 800 // stride, 1344 // stride
    maps = torch.randn(2, channels, height, width)
    sizes = torch.rand(512, 2) * 20 * stride + 4 * stride
    low = torch.rand(512, 2) * torch.tensor([1344.0, 800.0]) - sizes / 2
    index = torch.randint(0, 2, (512, 1)).float()
    rois = torch.cat((index, low, low + sizes), 1)
    out = torch.empty(512, channels, 7, 7)

    def stock() -> Tensor:
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (maps, rois, out)]
        sizes = [ctypes.c_int64(n)
                 for n in (512, channels, height, width, 7)]
        library.roi_align_forward(*pointers[:2], *sizes,
                                  ctypes.c_float(1 / stride),
                                  ctypes.c_int64(ratio), pointers[2])
        return out

    def turbo() -> Tensor:
        return roi_align(maps, rois, 7, 1 / stride, ratio)

    def check() -> None:
        torch.testing.assert_close(turbo(), stock(), rtol=1e-3, atol=1e-4)

    samples = f'ratio {ratio}' if ratio else 'adaptive'
    return Case(f'RoI align, 512 boxes, forward, stride {stride}, {samples}',
                stock, turbo, target, check)


def _heat_maps() -> Case:
    """200 boxes of each of 10 classes."""
    from mmdet3d.models.utils import draw_heatmap_gaussian, gaussian_radius
    classes, size = 10, 128
    planes = torch.arange(classes).repeat(200)
    centers = torch.randint(0, size, (len(planes), 2)).int()
    sizes = torch.rand(len(planes), 2) * 14 + 0.5

    def stock() -> Tensor:
        maps = torch.zeros(classes, size, size)
        for plane, center, box in zip(planes, centers, sizes, strict=True):
            radius = gaussian_radius((box[0], box[1]), min_overlap=0.1)
            draw_heatmap_gaussian(maps[plane], center, max(2, int(radius)))
        return maps

    def turbo() -> Tensor:
        return draw_box_gaussians(planes, centers, sizes, classes, size, size,
                                  0.1, 2)

    def check() -> None:
        assert torch.equal(stock(), turbo()), 'stock and turbo differ'

    return Case('heat maps, 200 boxes x 10 classes', stock, turbo, 20.0,
                check)


def cases() -> Iterator[Case]:
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    torch.manual_seed(0)
    library = baselines('images')
    yield _roi_align(library, 16, 0, 3.0)
    yield _roi_align(library, 16, 2, 3.0)
    yield _roi_align(library, 4, 0, 3.0)
    yield _heat_maps()
