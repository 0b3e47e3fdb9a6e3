"""Gaussians drawn for a batch: reference, native kernel, numpy."""

import numpy as np
import pytest
import torch

from mmturbox.ops.draw_gaussians import (
    draw_box_gaussians,
    draw_box_gaussians_reference,
    draw_gaussians,
    draw_gaussians_reference,
    gaussian_radius,
)

PLANES, HEIGHT, WIDTH = 5, 17, 23


def random_boxes(count, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high, *shape):
        return torch.randint(low, high, (count, *shape), generator=generator)

    return (draw(-1, PLANES), draw(-30, 40, 2).int(), draw(0, 25))


def draw_with_numpy(planes, centers, radii):
    maps = np.zeros((PLANES, HEIGHT, WIDTH), dtype=np.float32)
    ys, xs = np.mgrid[:HEIGHT, :WIDTH]
    for plane, (x, y), radius in zip(
            planes.tolist(), centers.tolist(), radii.tolist(), strict=True):
        if plane < 0:
            continue
        sigma = (2 * radius + 1) / 6
        values = np.exp(-((xs - x)**2. + (ys - y)**2.) / (2 * sigma * sigma))
        near = (abs(xs - x) <= radius) & (abs(ys - y) <= radius)
        maps[plane] = np.maximum(maps[plane],
                                 (values * near).astype(np.float32))
    return torch.from_numpy(maps)


def random_sizes(count):
    """(N, 2) sizes in cells, of which a few are extreme."""
    generator = torch.Generator().manual_seed(count)
    sizes = torch.rand(count, 2, generator=generator) * 40 + 0.01
    sizes[::7] *= 1e-3
    sizes[3::11] = torch.tensor([1e4, 1e-4])
    return sizes


@pytest.mark.parametrize('count', [0, 1, 7, 300])
def test_operator_and_reference_equal_numpy_bit_for_bit(device, count):
    boxes = random_boxes(count)
    expected = draw_with_numpy(*boxes)
    boxes = [one.to(device) for one in boxes]
    for draw in (draw_gaussians, draw_gaussians_reference):
        found = draw(*boxes, PLANES, HEIGHT, WIDTH)
        assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize('overlap, min_radius', [(0.1, 2), (0.5, 0)])
@pytest.mark.parametrize('count', [0, 1, 200])
def test_box_sizes_give_the_radius(device, count, overlap, min_radius):
    planes, centers, _ = (one.to(device) for one in random_boxes(count))
    sizes = random_sizes(count).to(device)
    radii = gaussian_radius(*sizes.unbind(1), overlap).long()
    shape = (PLANES, HEIGHT, WIDTH)
    expected = draw_gaussians_reference(
        planes, centers, radii.clamp(min=min_radius), *shape)
    for draw in (draw_box_gaussians, draw_box_gaussians_reference):
        found = draw(planes, centers, sizes, *shape, overlap, min_radius)
        assert torch.equal(found, expected)


def test_sizes_without_a_radius_take_the_least(device):
    sizes = torch.tensor([[np.nan, 1], [np.inf, 2], [np.inf, np.inf],
                          [0, 0]], device=device)
    planes = torch.zeros(4, dtype=torch.int64, device=device)
    centers = torch.tensor([[8, 8]] * 4, dtype=torch.int32, device=device)
    found = draw_box_gaussians(planes, centers, sizes, 1, 17, 17)
    radii = torch.full_like(planes, 2)
    assert torch.equal(found, draw_gaussians(planes, centers, radii, 1, 17,
                                             17))


def test_boxes_equal_mmdet3d_one_by_one():
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    stock = pytest.importorskip('mmdet3d.models.utils')
    planes, centers, _ = random_boxes(150)
    inside = ((centers >= 0) & (centers < torch.tensor([WIDTH, HEIGHT])))
    planes = torch.where(inside.all(1), planes, -1)
    sizes = random_sizes(150)
    expected = torch.zeros(PLANES, HEIGHT, WIDTH)
    for plane, center, size in zip(planes, centers, sizes, strict=True):
        if plane >= 0:
            radius = max(2, int(stock.gaussian_radius(tuple(size), 0.1)))
            stock.draw_heatmap_gaussian(expected[plane], center, radius)
    found = draw_box_gaussians(planes, centers, sizes, PLANES, HEIGHT, WIDTH)
    assert torch.equal(found, expected)


def test_every_radius_rounds_to_what_numpy_gives():
    for radius in (*range(67), 255):
        planes, radii = torch.zeros(1).long(), torch.tensor([radius])
        center = torch.zeros(1, 2).int()
        size = radius + 2
        got = draw_gaussians(planes, center, radii, 1, size, size)[0]
        squared = np.add.outer(*[np.arange(size)**2.] * 2)
        sigma = (2 * radius + 1) / 6
        expected = np.exp(-squared / (2 * sigma * sigma)).astype(np.float32)
        expected[radius + 1:] = expected[:, radius + 1:] = 0
        np.testing.assert_array_equal(got.numpy(), expected)


def test_no_planes_and_empty_maps():
    boxes = random_boxes(0)
    for shape in ((0, 4, 4), (2, 0, 4)):
        assert draw_gaussians(*boxes, *shape).shape == shape


def test_non_contiguous_inputs_give_the_same():
    planes, centers, radii = random_boxes(40)
    strided = [torch.stack([one, one], -1)[..., 0]
               for one in (planes, centers, radii)]
    assert torch.equal(
        draw_gaussians(*strided, PLANES, HEIGHT, WIDTH),
        draw_gaussians(planes, centers, radii, PLANES, HEIGHT, WIDTH))


def test_a_plane_that_is_not_there_is_an_error_or_not_drawn(device):
    planes, centers, radii = (one.to(device) for one in random_boxes(3))
    planes[:] = torch.tensor([0, PLANES, -1])
    try:
        found = draw_gaussians(planes, centers, radii, PLANES, HEIGHT, WIDTH)
    except RuntimeError:
        return
    planes[1] = -1
    assert torch.equal(
        found, draw_gaussians(planes, centers, radii, PLANES, HEIGHT, WIDTH))


def test_opcheck():
    planes, centers, _ = random_boxes(9)
    torch.library.opcheck(
        torch.ops.mmturbox.draw_box_gaussians.default,
        (planes, centers, random_sizes(9), PLANES, HEIGHT, WIDTH, 0.1, 2))
    torch.library.opcheck(torch.ops.mmturbox.draw_gaussians.default,
                          (*random_boxes(9), PLANES, HEIGHT, WIDTH))


def test_wrong_inputs_are_named():
    planes, centers, radii = random_boxes(3)
    with pytest.raises(ValueError, match='centers must be torch.int32'):
        draw_gaussians(planes, centers.long(), radii, 5, 4, 4)
    with pytest.raises(ValueError, match='sizes must be torch.float32'):
        draw_box_gaussians(planes, centers, radii, 5, 4, 4)
    with pytest.raises(ValueError, match='radii must be on cpu'):
        draw_gaussians(planes, centers, radii.to('meta'), 5, 4, 4)
    with pytest.raises(ValueError, match='radii must be'):
        draw_gaussians(planes, centers, radii[:2], 5, 4, 4)
