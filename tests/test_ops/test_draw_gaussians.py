"""Gaussians drawn for a batch: reference, native kernel, numpy."""

import numpy as np
import pytest
import torch

from mmturbox.ops.draw_gaussians import (
    draw_gaussians,
    draw_gaussians_reference,
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


@pytest.mark.parametrize('count', [0, 1, 7, 300])
def test_operator_and_reference_equal_numpy_bit_for_bit(count):
    boxes = random_boxes(count)
    expected = draw_with_numpy(*boxes)
    for draw in (draw_gaussians, draw_gaussians_reference):
        assert torch.equal(draw(*boxes, PLANES, HEIGHT, WIDTH), expected)


def test_every_radius_rounds_to_what_numpy_gives():
    for radius in (*range(65), 255):
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


def test_opcheck():
    torch.library.opcheck(torch.ops.mmturbox.draw_gaussians.default,
                          (*random_boxes(9), PLANES, HEIGHT, WIDTH))


def test_wrong_inputs_are_named():
    planes, centers, radii = random_boxes(3)
    with pytest.raises(ValueError, match='centers must be torch.int32'):
        draw_gaussians(planes, centers.long(), radii, 5, 4, 4)
    with pytest.raises(ValueError, match='radii must be'):
        draw_gaussians(planes, centers, radii[:2], 5, 4, 4)
