"""IoU of rotated boxes with a gradient."""

import math

import pytest
import torch

from mmturbox.ops import (
    box_iou_rotated,
    diff_iou_rotated_2d,
    diff_iou_rotated_3d,
    sort_vertices,
)
from mmturbox.ops.diff_iou_rotated import (
    rotated_overlap_backward_reference,
    rotated_overlap_reference,
    sort_vertices_reference,
)

OPS = torch.ops.mmturbox
FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]


def make_pairs(number, width=5, dtype=torch.float64, seed=0):
    """Boxes that nearly all overlap, in general position."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(2, number, width, generator=generator,
                       dtype=torch.float64)
    boxes = boxes * 4
    boxes[..., width // 2:-1] += 1
    return boxes[0].to(dtype), boxes[1].to(dtype)


def polygon_iou(box1, box2):
    """Through autograd: clip one outline by the other, shoelace formula."""

    def corners(box):
        x, y, w, h, angle = box
        c, s = angle.cos(), angle.sin()
        return [(x + c * u * w / 2 - s * v * h / 2,
                 y + s * u * w / 2 + c * v * h / 2)
                for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))]

    polygon, window = corners(box1), corners(box2)
    for i in range(4):
        (x1, y1), (x2, y2) = window[i - 1], window[i]
        side = [(x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
                for x, y in polygon]
        clipped = []
        for j, (x, y) in enumerate(polygon):
            before, (px, py) = side[j - 1], polygon[j - 1]
            if (before >= 0) != (side[j] >= 0):
                t = before / (before - side[j])
                clipped.append((px + t * (x - px), py + t * (y - py)))
            if side[j] >= 0:
                clipped.append((x, y))
        polygon = clipped
    if not polygon:
        return (box1.sum() + box2.sum()) * 0
    area = sum(polygon[j - 1][0] * polygon[j][1]
               - polygon[j][0] * polygon[j - 1][1]
               for j in range(len(polygon))).abs() / 2
    return area / (box1[2] * box1[3] + box2[2] * box2[3] - area)


def gradients(function, *boxes):
    leaves = [b.detach().clone().requires_grad_() for b in boxes]
    out = function(*leaves)
    weight = torch.linspace(1, 2, out.numel()).to(out).view(out.shape)
    (out * weight).sum().backward()
    return out.detach(), *(leaf.grad for leaf in leaves)


def test_value_and_gradient_agree_with_autograd_through_the_polygon(device):
    boxes = make_pairs(60)

    def plain(box1, box2):
        return torch.stack([polygon_iou(a, b)
                            for a, b in zip(box1, box2, strict=True)])

    found = gradients(diff_iou_rotated_2d, *(b.to(device) for b in boxes))
    assert (found[0] > 0).sum() > 40 and (found[0] == 0).any()
    for a, b in zip(found, gradients(plain, *boxes), strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize('function, width', [(diff_iou_rotated_2d, 5),
                                             (diff_iou_rotated_3d, 7)])
def test_gradcheck(device, function, width):
    box1, box2 = (b.to(device).requires_grad_()
                  for b in make_pairs(12, width, seed=3))
    assert (function(box1, box2) > 0.02).sum() > 5
    assert torch.autograd.gradcheck(function, (box1, box2))


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('number', [1, 257])
def test_native_kernels_equal_the_reference(device, dtype, number):
    box1, box2 = make_pairs(number, dtype=dtype, seed=1)
    box2[::5] = box1[::5]
    grad = torch.linspace(-1, 1, number, dtype=dtype)
    moved = [t.to(device) for t in (grad, box1, box2)]
    torch.testing.assert_close(
        OPS.rotated_overlap(*moved[1:]).cpu(),
        rotated_overlap_reference(box1, box2))
    found = OPS.rotated_overlap_backward(*moved)
    want = rotated_overlap_backward_reference(grad, box1, box2)
    for a, b in zip(found, want, strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_equals_the_iou_without_gradient_and_its_product_with_height(device):
    box1, box2 = (b.to(device) for b in make_pairs(80, 7))
    bev = [0, 1, 3, 4, 6]
    torch.testing.assert_close(
        diff_iou_rotated_2d(box1[:, bev], box2[:, bev]),
        box_iou_rotated(box1[:, bev], box2[:, bev], aligned=True))
    area = box_iou_rotated(box1[:, bev], box2[:, bev], 'area', aligned=True)
    low = torch.maximum(box1[:, 2] - box1[:, 5] / 2,
                        box2[:, 2] - box2[:, 5] / 2)
    high = torch.minimum(box1[:, 2] + box1[:, 5] / 2,
                         box2[:, 2] + box2[:, 5] / 2)
    shared = area * (high - low).clamp(min=0)
    want = shared / (box1[:, 3:6].prod(1) + box2[:, 3:6].prod(1) - shared)
    assert (want > 0).sum() > 30
    torch.testing.assert_close(diff_iou_rotated_3d(box1, box2), want)


def test_published_values(device):
    """The figures of mmcv's own tests."""
    left = torch.tensor([[[0.5, 0.5, 1., 1., 0.0]] * 5], device=device)
    right = torch.tensor(
        [[[0.5, 0.5, 1., 1., 0], [0.5, 0.5, 1, 1, math.pi / 2],
          [0.5, 0.5, 1, 1, math.pi / 4], [1, 1, 1, 1, 0],
          [1.5, 1.5, 1, 1, 0]]], device=device)
    want = torch.tensor([[1, 1, 0.5**0.5, 1 / 7, 0]])
    torch.testing.assert_close(
        diff_iou_rotated_2d(left, right).cpu(), want, atol=1e-5, rtol=0)
    solid = torch.tensor([[[0.5, 0.5, 0.5, 1., 1, 1, 0]] * 2], device=device)
    other = solid.clone()
    other[0, 1, :3] += 0.5
    torch.testing.assert_close(
        diff_iou_rotated_3d(solid, other).cpu(),
        torch.tensor([[1, 1 / 15]]), atol=1e-5, rtol=0)


def test_identical_boxes_have_iou_one_and_no_gradient(device):
    """KF-A5: the middle of slopes that point to the box from both sides."""
    box = make_pairs(50)[0].to(device)
    iou, grad1, grad2 = gradients(diff_iou_rotated_2d, box, box)
    torch.testing.assert_close(iou, torch.ones_like(iou))
    for grad in (grad1, grad2):
        assert grad.abs().max() < 1e-9


def test_boxes_apart_or_without_size_have_no_iou_and_no_gradient(device):
    box = torch.tensor([[0., 0, 2, 1, 0.3]] * 3, device=device)
    other = box.clone()
    other[0, :2] = 50
    other[1, 2] = 0
    other[2, 3] = -1
    for a, b in ((box, other), (other, box), (other[1:], other[1:])):
        iou, *grads = gradients(diff_iou_rotated_2d, a, b)
        assert (iou == 0).all()
        assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize('shape', [(0, ), (2, 0), (1, ), (2, 3), ()])
def test_any_leading_shape(device, shape):
    box = torch.ones(*shape, 7, device=device)
    assert diff_iou_rotated_3d(box, box).shape == shape
    iou, grad, _ = gradients(diff_iou_rotated_2d, box[..., :5], box[..., :5])
    assert iou.shape == shape and grad.shape == (*shape, 5)


@pytest.mark.parametrize('dtype', HALVES)
def test_half_precision_is_the_float32_result_rounded(device, dtype):
    box1, box2 = (b.to(device) for b in make_pairs(40, dtype=dtype))
    out = gradients(diff_iou_rotated_2d, box1, box2)
    want = gradients(diff_iou_rotated_2d, box1.float(), box2.float())
    assert torch.equal(out[0], want[0].to(dtype))
    for a, b in zip(out[1:], want[1:], strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), b, atol=0.02, rtol=0.02)


def test_strided_boxes(device):
    box1, box2 = (b.to(device) for b in make_pairs(30))
    wide = torch.zeros(30, 12, dtype=box1.dtype, device=device)
    wide[:, 1:11:2] = box1
    for a, b in zip(gradients(diff_iou_rotated_2d, wide[:, 1:11:2], box2),
                    gradients(diff_iou_rotated_2d, box1, box2), strict=True):
        assert torch.equal(a, b)


def make_vertices(number, dtype=torch.float32):
    """Places on a small grid, so that many coincide, about the origin."""
    generator = torch.Generator().manual_seed(number)
    vertices = torch.randint(
        -3, 4, (number, 24, 2), generator=generator).to(dtype)
    mask = torch.rand(number, 24, generator=generator) < 0.3
    return vertices, mask


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('number', [0, 1, 200])
def test_vertices_are_sorted_as_the_reference_does(device, dtype, number):
    vertices, mask = make_vertices(number, dtype)
    vertices += torch.rand(1, dtype=dtype) * 1e-8
    found = sort_vertices(vertices.to(device), mask.to(device)).cpu()
    assert found.dtype == torch.int32 and found.shape == (number, 9)
    assert torch.equal(found, sort_vertices_reference(vertices, mask))


def test_vertices_go_round_once_and_each_place_once(device):
    angle = torch.tensor([2., 0.1, 3, 4, 5.5, 1])
    vertices = torch.zeros(24, 2)
    vertices[:6] = torch.stack([angle.cos(), angle.sin()], 1)
    vertices[6:8] = vertices[2]  # again
    mask = torch.zeros(24, dtype=torch.bool)
    mask[:8] = True
    order = sort_vertices(vertices.to(device), mask.to(device)).tolist()
    start = order.index(1)
    ring = order[:6][start:] + order[:6][:start]
    assert ring == [1, 5, 0, 2, 3, 4]
    assert order[6] == order[0] and order[7:] == [8, 8]
    mask[2:] = False
    assert sort_vertices(
        vertices.to(device), mask.to(device)).tolist() == [8] * 9


def test_opcheck():
    box1, box2 = make_pairs(5)
    grad = torch.ones(5, dtype=torch.float64)
    torch.library.opcheck(
        OPS.rotated_overlap.default,
        (box1.requires_grad_(), box2.requires_grad_()))
    torch.library.opcheck(OPS.rotated_overlap_backward.default,
                          (grad, box1.detach(), box2.detach()))
    torch.library.opcheck(OPS.sort_vertices.default, make_vertices(4))


def test_runs_and_thread_counts_agree_to_the_bit(device):
    boxes = [b.to(device) for b in make_pairs(700)]
    threads = torch.get_num_threads()
    runs = []
    try:
        for count in (1, 2, 2):
            torch.set_num_threads(count)
            runs.append(gradients(diff_iou_rotated_2d, *boxes))
    finally:
        torch.set_num_threads(threads)
    for run in runs[1:]:
        for a, b in zip(run, runs[0], strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize('call, error', [
    (lambda b: diff_iou_rotated_2d(b, b[:2]), ValueError),
    (lambda b: diff_iou_rotated_2d(b[:, :4], b[:, :4]), ValueError),
    (lambda b: diff_iou_rotated_3d(b, b), ValueError),
    (lambda b: diff_iou_rotated_2d(b.long(), b), TypeError),
    (lambda b: sort_vertices(b, b > 0), ValueError),
])
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match='must'):
        call(make_pairs(3)[0])
