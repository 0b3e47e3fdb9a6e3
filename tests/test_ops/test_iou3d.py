"""Bird's eye view overlap and suppression of 3D boxes."""

import pytest
import torch

from mmturbox.ops import (
    box_iou_rotated,
    boxes_overlap_bev,
    nms3d,
    nms3d_normal,
)
from mmturbox.ops.box_iou_rotated import box_iou_rotated_reference

FLOATS = [torch.float32, torch.float64]

ON_DEVICE = pytest.mark.usefixtures('on_device')


@pytest.fixture
def on_device(device):
    """Tensors are made on the device that the operators run on."""
    with torch.device(device):
        yield


def make_boxes(number, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.device('cpu'):
        boxes = torch.rand(number, 7, generator=generator) * 8 - 4
        boxes[:, 3:6] = boxes[:, 3:6].abs() + 0.5
        boxes[:, :2] += 50
        scores = torch.randint(1, 20, (number, ), generator=generator) / 20
    device = torch.get_default_device()
    return boxes.to(device, dtype), scores.to(device, dtype)


def plain_nms(iou, scores, threshold):
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: -float(scores[i])):
        if all(iou[k, i] <= threshold for k in kept):
            kept.append(i)
    return kept


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
def test_overlap_is_the_area_of_the_outlines_from_above(dtype):
    boxes_a, boxes_b = make_boxes(40, dtype)[0], make_boxes(30, dtype, 1)[0]
    out = boxes_overlap_bev(boxes_a, boxes_b)
    bev_a, bev_b = (b[:, [0, 1, 3, 4, 6]] for b in (boxes_a, boxes_b))
    torch.testing.assert_close(
        out, box_iou_rotated_reference(bev_a, bev_b, 2, False))
    # Its own area with itself, whatever z and height say.
    lifted = boxes_a + torch.tensor([0, 0, 100, 0, 0, 0, 0], dtype=dtype)
    torch.testing.assert_close(
        boxes_overlap_bev(boxes_a, lifted).diagonal(),
        boxes_a[:, 3] * boxes_a[:, 4])


def test_yaw_turns_x_towards_y():
    long = torch.tensor([[0., 0, 0, 10, 0.1, 1, 0.5]])
    ahead = torch.tensor([0.5]).cos(), torch.tensor([0.5]).sin()
    spot = torch.tensor([[4 * ahead[0], 4 * ahead[1], 0, 0.01, 0.01, 1, 0]])
    mirrored = spot * torch.tensor([1, -1, 1, 1, 1, 1, 1])
    assert boxes_overlap_bev(long, spot) > 0
    assert boxes_overlap_bev(long, mirrored) == 0


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
def test_nms3d_agrees_with_pairwise_iou(dtype):
    boxes, scores = make_boxes(100, dtype)
    for operator, columns in ((nms3d, [0, 1, 3, 4, 6]),
                              (nms3d_normal, [0, 1, 3, 4])):
        bev = boxes[:, columns]
        if len(columns) == 4:
            bev = torch.nn.functional.pad(bev, (0, 1))
        keep = operator(boxes, scores, 0.3)
        assert keep.dtype == torch.int64 and 10 < len(keep) < 90
        iou = box_iou_rotated(bev.double(), bev.double())
        assert keep.tolist() == plain_nms(iou, scores, 0.3)
        assert torch.equal(keep, operator(boxes, scores, 0.3))


@ON_DEVICE
@pytest.mark.parametrize('operator', [nms3d, nms3d_normal])
def test_ties_empties_halves_and_strides(operator):
    for number in (1, 10, 17, 100, 1000):
        boxes = torch.tensor([[1., 2, 0, 4, 2, 1, 0.3]]).repeat(number, 1)
        keep = operator(boxes, torch.ones(number), 0.5)
        assert keep.tolist() == [0]  # KF-A9
    boxes, scores = make_boxes(60)
    none = operator(boxes[:0], scores[:0], 0.5)  # KF-A8
    assert none.shape == (0, ) and none.dtype == torch.int64
    want = operator(boxes, scores, 0.3)
    wide = torch.randn(60, 9)
    wide[:, :7] = boxes
    assert torch.equal(operator(wide[:, :7], scores, 0.3), want)  # KF-A6
    half = boxes.half(), scores.half()
    assert torch.equal(
        operator(*half, 0.3),
        operator(half[0].float(), half[1].float(), 0.3))  # KF-A7


@ON_DEVICE
@pytest.mark.parametrize('rows, cols', [(0, 3), (3, 0), (1, 1)])
def test_overlap_of_few_boxes(rows, cols):
    out = boxes_overlap_bev(make_boxes(rows)[0], make_boxes(cols)[0])
    assert out.shape == (rows, cols)


@pytest.mark.parametrize('call, error', [
    (lambda b, s: boxes_overlap_bev(b[:, :5], b), ValueError),
    (lambda b, s: nms3d(b[:, :5], s, 0.5), ValueError),
    (lambda b, s: nms3d_normal(b, s[:1], 0.5), ValueError),
    (lambda b, s: nms3d(b.int(), s, 0.5), TypeError),
])
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match='must'):
        call(*make_boxes(3))
