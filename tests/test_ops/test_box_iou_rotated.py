"""Overlap of rotated boxes against polygon clipping in float64."""

import math

import pytest
import torch

from mmturbox.ops import box_iou_rotated
from mmturbox.ops.box_iou_rotated import MODES, box_iou_rotated_reference

FLOATS = [torch.float32, torch.float64]
REPORTED = [0, 0, 180.6422, 136.3634, 0.95596]

ON_DEVICE = pytest.mark.usefixtures('on_device')


@pytest.fixture
def on_device(device):
    """Tensors are made on the device that the operators run on."""
    with torch.device(device):
        yield


def make_boxes(number, dtype=torch.float32, seed=0, span=10.):
    generator = torch.Generator().manual_seed(seed)
    with torch.device('cpu'):
        boxes = torch.rand(number, 5, generator=generator, dtype=torch.float64)
        low = torch.tensor([0, 0, 0.05, 0.05, -4], dtype=torch.float64)
        high = torch.tensor([span, span, 6, 6, 4], dtype=torch.float64)
        boxes = low + boxes * (high - low)
    return boxes.to(torch.get_default_device(), dtype)


def corners(box):
    x, y, w, h, angle = box
    c, s = math.cos(angle), math.sin(angle)
    return [(x + c * u * w / 2 - s * v * h / 2,
             y + s * u * w / 2 + c * v * h / 2)
            for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))]


def clipped_area(box1, box2):
    """Sutherland and Hodgman's clipping, then the shoelace formula."""
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
    return abs(sum(
        polygon[j - 1][0] * polygon[j][1] - polygon[j][0] * polygon[j - 1][1]
        for j in range(len(polygon)))) / 2


def plain_iou(boxes1, boxes2):
    """Aligned IoU in Python floats, centres shifted as it is exact."""
    out = []
    for a, b in zip(
            boxes1.double().tolist(), boxes2.double().tolist(), strict=True):
        shift = [b[0] - a[0], b[1] - a[1], *b[2:]]
        shared = clipped_area([0, 0, *a[2:]], shift)
        out.append(shared / (a[2] * a[3] + b[2] * b[3] - shared))
    return torch.tensor(out, dtype=torch.float64)


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('mode', list(MODES))
def test_all_pairs_agree_with_clipping_and_with_the_reference(mode, dtype):
    boxes1, boxes2 = make_boxes(50, dtype), make_boxes(40, dtype, seed=1)
    out = box_iou_rotated(boxes1, boxes2, mode)
    assert out.shape == (50, 40) and out.dtype == dtype
    assert 0.1 < (out > 0).double().mean() < 0.6
    torch.testing.assert_close(
        out, box_iou_rotated_reference(boxes1, boxes2, MODES[mode], False))
    for i, a in enumerate(boxes1.double().tolist()):
        for j, b in enumerate(boxes2.double().tolist()):
            want = clipped_area(a, b)
            if mode != 'area':
                want /= a[2] * a[3] + (mode == 'iou') * (b[2] * b[3] - want)
            assert float(out[i, j]) == pytest.approx(want, abs=1e-6)


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
def test_a_box_with_itself_gives_one(dtype):
    """KF-A5: 20,000 random boxes and the reported one."""
    boxes = make_boxes(20000, dtype, span=1000.)
    boxes[0] = torch.tensor(REPORTED, dtype=dtype)
    iou = box_iou_rotated(boxes, boxes, aligned=True)
    assert (iou - 1).abs().max() < 1e-6
    assert (box_iou_rotated_reference(boxes, boxes, 0, True)
            - 1).abs().max() < 1e-6
    assert box_iou_rotated(boxes[:1], boxes[:1]).item() == pytest.approx(1)


@ON_DEVICE
@pytest.mark.parametrize('column, name', list(enumerate('xywha')))
def test_a_small_change_of_a_box_changes_the_iou_a_little(column, name):
    """KF-A5: no islands of 0 or 0.33 next to a box's own place."""
    boxes = make_boxes(600)
    boxes[0] = torch.tensor(REPORTED)
    boxes[:, 2:4] += 1
    last = torch.ones(600)
    for change in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        moved = boxes.clone()
        moved[:, column] += change
        iou = box_iou_rotated(boxes, moved, aligned=True)
        assert (iou - plain_iou(boxes, moved)).abs().max() < 1e-4
        assert (iou > 1 - 4 * change - 1e-5).all() or name == 'a'
        assert (iou <= last + 1e-6).all()
        last = iou


def test_angles_that_differ_by_whole_turns_of_the_box():
    boxes = make_boxes(200, torch.float64)
    square = boxes.clone()
    square[:, 3] = square[:, 2]
    for base, turn in ((boxes, math.pi), (square, math.pi / 2)):
        turned = base.clone()
        turned[:, 4] += turn
        assert (box_iou_rotated(base, turned, aligned=True)
                - 1).abs().max() < 1e-9


@ON_DEVICE
def test_extreme_shapes_and_far_away_boxes():
    # A needle across a plate, a dot in a plate, both far from the origin.
    plate = [1e5, -1e5, 100, 100, 0.3]
    needle = [1e5, -1e5, 1e4, 0.01, 1.1]
    dot = [1e5 + 3, -1e5, 1e-4, 1e-4, 0.7]
    for dtype in FLOATS:
        boxes = torch.tensor([plate, needle, dot], dtype=dtype)
        area = box_iou_rotated(boxes, boxes, 'area')
        rows = boxes.double().tolist()
        for i, a in enumerate(rows):
            for j, b in enumerate(rows):
                shift = [b[0] - a[0], b[1] - a[1], *b[2:]]
                assert float(area[i, j]) == pytest.approx(
                    clipped_area([0, 0, *a[2:]], shift), rel=1e-5)


@ON_DEVICE
def test_boxes_that_do_not_meet_or_only_touch_give_exactly_zero():
    boxes = make_boxes(100)
    assert not box_iou_rotated(boxes, boxes + 50).any()
    box = torch.tensor([[0., 0, 4, 2, 0]])
    beside = torch.tensor([[4., 0, 4, 2, 0], [0, 2, 4, 2, 0]])
    assert not box_iou_rotated(box, beside).any()


@ON_DEVICE
def test_no_size_a_negative_size_and_nan_give_zero():
    box = torch.tensor([[1., 1, 4, 2, 0.5]])
    bad = box.repeat(7, 1)
    bad[0, 2] = 0
    bad[1, 3] = -2
    for i in range(5):
        bad[2 + i, i] = float('nan')
    for mode in MODES:
        assert (box_iou_rotated(box, bad, mode) == 0).all()
        assert (box_iou_rotated(bad, box, mode) == 0).all()
        assert (box_iou_rotated_reference(box, bad, MODES[mode], False)
                == 0).all()


@ON_DEVICE
@pytest.mark.parametrize('rows, cols', [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_few_boxes(rows, cols):
    out = box_iou_rotated(make_boxes(rows), make_boxes(cols))
    assert out.shape == (rows, cols)
    assert box_iou_rotated(
        make_boxes(rows), make_boxes(rows), aligned=True).shape == (rows, )


@ON_DEVICE
def test_strided_boxes():
    """KF-A6."""
    boxes = make_boxes(60)
    wide = torch.randn(60, 7)
    wide[:, 1:6] = boxes
    for view in (wide[:, 1:6], boxes.t().contiguous().t()):
        assert not view.is_contiguous()
        assert torch.equal(
            box_iou_rotated(view, view), box_iou_rotated(boxes, boxes))


@ON_DEVICE
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_the_float32_result_rounded(dtype):
    """KF-A7."""
    boxes = make_boxes(60).to(dtype)
    out = box_iou_rotated(boxes, boxes)
    assert torch.equal(
        out, box_iou_rotated(boxes.float(), boxes.float()).to(dtype))
    assert (out.diagonal() == 1).all()


def test_the_result_is_cut_from_the_graph():
    boxes = make_boxes(3).requires_grad_()
    assert not box_iou_rotated(boxes, boxes).requires_grad


def test_opcheck():
    boxes1, boxes2 = make_boxes(4), make_boxes(4, seed=1)
    for aligned in (False, True):
        for mode in MODES.values():
            torch.library.opcheck(torch.ops.mmturbox.box_iou_rotated.default,
                                  (boxes1, boxes2, mode, aligned))


@ON_DEVICE
def test_two_runs_and_other_thread_counts_are_equal():
    boxes = make_boxes(200)
    first = box_iou_rotated(boxes, boxes)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(first, box_iou_rotated(boxes, boxes))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('call, error', [
    (lambda b: box_iou_rotated(b[:, :4], b), ValueError),
    (lambda b: box_iou_rotated(b, b.long()), TypeError),
    (lambda b: box_iou_rotated(b, b, mode='giou'), ValueError),
    (lambda b: box_iou_rotated(b, b[:1], aligned=True), ValueError),
])
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match='must'):
        call(make_boxes(3))


@pytest.mark.parametrize('clockwise', [True, False])
@pytest.mark.parametrize('aligned', [True, False])
def test_through_mmcv(aligned, clockwise):
    pytest.importorskip('mmcv')
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    from mmcv.ops import box_iou_rotated as through_mmcv
    boxes1, boxes2 = make_boxes(30), make_boxes(30, seed=1)
    flip = torch.tensor([1, 1, 1, 1, 1 if clockwise else -1])
    for mode in ('iou', 'iof'):
        out = through_mmcv(boxes1, boxes2, mode, aligned, clockwise)
        want = box_iou_rotated(boxes1 * flip, boxes2 * flip, mode, aligned)
        assert torch.equal(out, want)
