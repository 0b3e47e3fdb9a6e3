"""mmcv's functions for quadrilaterals and point sets over our ``_ext``."""

import pytest
import torch

pytest.importorskip('mmcv')

from mmturbox import ops  # noqa: E402
from mmturbox.ops import mmcv_ext  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def corners(boxes):
    """(N, 5) rotated boxes -> (N, 8)."""
    x, y, w, h, angle = boxes.unbind(1)
    c, s = angle.cos(), angle.sin()
    out = [t for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))
           for t in (x + c * u * w / 2 - s * v * h / 2,
                     y + s * u * w / 2 + c * v * h / 2)]
    return torch.stack(out, 1)


def make_boxes(number, seed=0):
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(number, 5, generator=generator) * 8
    boxes[:, 2:4] += 1
    return boxes, torch.rand(number, generator=generator)


@pytest.mark.parametrize('mode', ['iou', 'iof'])
@pytest.mark.parametrize('backwards', [False, True])
def test_quadrilaterals_that_are_rotated_boxes(mmcv_ops, mode, backwards):
    a, b = make_boxes(40)[0], make_boxes(30, 1)[0]
    a[3] = b[5]
    quads_a, quads_b = corners(a), corners(b)
    if backwards:
        quads_b = quads_b.view(-1, 4, 2).flip(1).reshape(-1, 8)
    want = ops.box_iou_rotated(a, b, mode)
    assert (want > 0).float().mean() > 0.3
    torch.testing.assert_close(
        mmcv_ops.box_iou_quadri(quads_a, quads_b, mode), want, atol=1e-5,
        rtol=1e-4)
    torch.testing.assert_close(
        mmcv_ops.box_iou_quadri(quads_a[:30], quads_b, mode, aligned=True),
        want[:30].diagonal(), atol=1e-5, rtol=1e-4)


def test_quadrilaterals_that_are_no_parallelograms(mmcv_ops):
    """mmcv's kernel gives 1 here: it takes the trapezoid for a rectangle."""
    trapezoid = torch.tensor([[1., 1, 3, 4, 4, 4, 4, 1]])
    rectangle = torch.tensor([[2., 1, 2, 4, 4, 4, 4, 1]])
    iou = mmcv_ops.box_iou_quadri(trapezoid, rectangle)
    assert iou.item() == pytest.approx(5.25 / 6.75)


def test_suppression_of_quadrilaterals(mmcv_ops):
    boxes, scores = make_boxes(60)
    want = ops.nms_rotated(boxes, scores, 0.2)
    for labels in (None, torch.arange(60) % 4):
        dets, keep = mmcv_ops.nms_quadri(corners(boxes), scores, 0.2, labels)
        assert torch.equal(keep, want)
        assert torch.equal(dets[:, 8], scores[keep])
    copies = corners(boxes[:1]).repeat(100, 1)
    assert mmcv_ops.nms_quadri(
        copies, torch.ones(100), 0.5)[1].tolist() == [0]  # KF-A9


POINT_SETS = torch.tensor(
    [[1., 1, 2, 2, 1, 2, 2, 1, 1, 3, 3, 1, 2, 3, 3, 2, 1.5, 1.5],
     [1.5, 1.5, 2.5, 2.5, 1.5, 2.5, 2.5, 1.5, 1.5, 3.5, 3.5, 1.5, 2.5, 3.5,
      3.5, 2.5, 2, 2]])
SQUARES = torch.tensor([[1., 1, 1, 2, 2, 2, 2, 1], [1, 1, 1, 3, 3, 3, 3, 1]])


def test_published_values_of_point_sets(mmcv_ops):
    """The figures of mmcv's own tests."""
    torch.testing.assert_close(
        mmcv_ops.convex_iou(POINT_SETS, SQUARES),
        torch.tensor([[0.2857, 0.8750], [0.0588, 0.4286]]), atol=1e-4,
        rtol=0)
    giou, grad = mmcv_ops.convex_giou(POINT_SETS, SQUARES)
    torch.testing.assert_close(
        giou, torch.tensor([0.2857, 0.3831]), atol=1e-4, rtol=0)
    # Of the corners where the slopes on both sides agree: a corner of the
    # square lies on the edge behind these.
    want = [-0.1848, -0.1848, 0, 0, 0, 0, 0, 0, -0.1076, -0.0801, -0.0801,
            -0.1076]
    torch.testing.assert_close(
        grad[1, :12], torch.tensor(want), atol=1e-4, rtol=0)
    points = POINT_SETS.clone()
    points[1] = torch.tensor([1., 1, 8, 8, 1, 2, 2, 1, 1, 3, 3, 1, 2, 3, 3, 2,
                              1.5, 1.5])
    torch.testing.assert_close(
        mmcv_ops.min_area_polygons(points),
        torch.tensor([[3., 1, 1, 1, 1, 3, 3, 3],
                      [8, 8, 2.3243, 0.0541, 0.0541, 1.6757, 5.7297,
                       9.6216]]), atol=1e-4, rtol=0)


def test_gradient_of_the_giou_agrees_with_differences(mmcv_ops):
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(6, 18, generator=generator, dtype=torch.float64) * 4
    squares = corners(make_boxes(6)[0].double()) / 2
    giou, grad = mmcv_ops.convex_giou(points, squares)
    assert (giou > 0).any() and (grad != 0).any(1).all()
    for k in range(18):
        moved = points.clone()
        moved[:, k] += 1e-6
        slope = (mmcv_ops.convex_giou(moved, squares)[0] - giou) / 1e-6
        torch.testing.assert_close(slope, grad[:, k], atol=1e-5, rtol=1e-4)


def test_hulls_of_points_that_coincide_or_lie_on_a_line(mmcv_ops):
    points = torch.ones(2, 18)
    points[1] = torch.arange(9.).repeat_interleave(2) / 4
    assert (mmcv_ops.convex_iou(points, SQUARES) == 0).all()
    rectangles = mmcv_ops.min_area_polygons(points).view(2, 4, 2)
    assert (rectangles[0] == 1).all()
    torch.testing.assert_close(
        rectangles[1].sort(0).values,
        torch.tensor([[0., 0], [0, 0], [2, 2], [2, 2]]))


def test_points_in_quadrilaterals(mmcv_ops):
    """The figures of mmcv's own test: the outline is outside."""
    points = torch.tensor([[300., 300], [400, 400], [100, 100], [300, 250],
                           [100, 0]])
    polygons = torch.tensor([[200., 200, 400, 400, 500, 200, 400, 100],
                             [400, 400, 500, 500, 600, 300, 500, 200],
                             [300, 300, 600, 700, 700, 700, 700, 100]])
    want = torch.zeros(5, 3)
    want[1, 2] = want[3, 0] = 1
    assert torch.equal(mmcv_ops.points_in_polygons(points, polygons), want)
    boxes = make_boxes(20)[0]
    points = torch.rand(300, 2) * 10
    local = points[:, None] - boxes[None, :, :2]
    c, s = boxes[:, 4].cos(), boxes[:, 4].sin()
    inside = ((local[..., 0] * c + local[..., 1] * s).abs() < boxes[:, 2] / 2)
    inside &= (local[..., 1] * c - local[..., 0] * s).abs() < boxes[:, 3] / 2
    found = mmcv_ops.points_in_polygons(points, corners(boxes))
    assert (found == inside).float().mean() > 0.999
    assert 0.1 < inside.float().mean() < 0.9


def test_nothing_in_nothing_out(mmcv_ops):
    """KF-A8."""
    none = torch.zeros(0, 8)
    assert mmcv_ops.box_iou_quadri(none, SQUARES).shape == (0, 2)
    assert mmcv_ops.convex_iou(torch.zeros(0, 18), SQUARES).shape == (0, 2)
    assert mmcv_ops.min_area_polygons(torch.zeros(0, 18)).shape == (0, 8)
    assert mmcv_ops.points_in_polygons(
        torch.zeros(0, 2), SQUARES).shape == (0, 2)
    assert mmcv_ops.convex_giou(torch.zeros(0, 18), none)[0].shape == (0, )
