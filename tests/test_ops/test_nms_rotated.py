"""Suppression of rotated boxes."""

import pytest
import torch

from mmturbox.ops import box_iou_rotated, nms_rotated
from mmturbox.ops.nms_rotated import nms_rotated_reference

FLOATS = [torch.float32, torch.float64]

ON_DEVICE = pytest.mark.usefixtures('on_device')


@pytest.fixture
def on_device(device):
    """Tensors are made on the device that the operators run on."""
    with torch.device(device):
        yield


def make_boxes(number, dtype=torch.float32, seed=0):
    """Crowded boxes, and scores of which many are equal."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device('cpu'):
        boxes = torch.rand(number, 5, generator=generator) * 8 - 4
        boxes[:, 2:4] = boxes[:, 2:4].abs() + 0.5
        scores = torch.randint(1, 20, (number, ), generator=generator) / 20
    device = torch.get_default_device()
    return boxes.to(device, dtype), scores.to(device, dtype)


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
def test_agrees_with_its_reference_and_with_pairwise_iou(dtype):
    boxes, scores = make_boxes(120, dtype)
    keep = nms_rotated(boxes, scores, 0.3)
    assert keep.dtype == torch.int64 and 10 < len(keep) < 110
    assert torch.equal(keep, nms_rotated_reference(boxes, scores, 0.3))
    iou = box_iou_rotated(boxes, boxes)
    kept = []
    for i in sorted(range(120), key=lambda i: -float(scores[i])):
        if all(iou[k, i] <= 0.3 for k in kept):
            kept.append(i)
    assert keep.tolist() == kept


@ON_DEVICE
@pytest.mark.parametrize('number', [2, 10, 17, 64, 100, 1000])
def test_identical_boxes_of_one_score_keep_the_first(number):
    """KF-A9."""
    boxes = torch.tensor([[1., 2, 11, 12, 0.3]]).repeat(number, 1)
    assert nms_rotated(boxes, torch.ones(number), 0.5).tolist() == [0]


@ON_DEVICE
def test_strided_boxes():
    """KF-A6: 300 boxes sliced out of seven columns, and a transpose."""
    boxes, scores = make_boxes(300)
    want = nms_rotated(boxes, scores, 0.3)
    wide = torch.randn(300, 7)
    wide[:, [0, 1, 3, 4, 6]] = boxes
    wide[:, 2:7] = boxes
    for view in (wide[:, 2:], boxes.t().contiguous().t()):
        assert not view.is_contiguous()
        assert torch.equal(nms_rotated(view, scores, 0.3), want)


@ON_DEVICE
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, *FLOATS])
def test_four_near_copies_reduce_to_two_in_each_dtype(dtype):
    """KF-A7."""
    boxes = torch.tensor([[10., 10, 20, 8, 0.5], [10.125, 10, 20, 8, 0.5],
                          [80, 80, 16, 10, -1], [80, 80.125, 16, 10, -1]])
    iou = box_iou_rotated(boxes, boxes)
    assert iou[0, 1] > 0.9 and iou[2, 3] > 0.9
    scores = torch.tensor([0.5, 0.75, 0.625, 0.25])
    keep = nms_rotated(boxes.to(dtype), scores.to(dtype), 0.5)
    assert keep.tolist() == [1, 2]


@ON_DEVICE
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_float32_result(dtype):
    """KF-A7."""
    boxes, scores = make_boxes(150, dtype)
    assert torch.equal(
        nms_rotated(boxes, scores, 0.3),
        nms_rotated(boxes.float(), scores.float(), 0.3))


@ON_DEVICE
def test_zero_boxes_one_box_and_empty_boxes():
    """KF-A8."""
    boxes, scores = make_boxes(1)
    keep = nms_rotated(boxes[:0], scores[:0], 0.5)
    assert keep.shape == (0, ) and keep.dtype == torch.int64
    assert nms_rotated(boxes, scores, 0.5).tolist() == [0]
    flat = boxes.repeat(3, 1) * torch.tensor([1, 1, 0, 1, 1])
    assert nms_rotated(flat, torch.ones(3), 0.5).tolist() == [0, 1, 2]


@ON_DEVICE
def test_a_box_goes_above_the_threshold_and_not_at_it():
    boxes = torch.tensor([[0., 0, 10, 10, 0], [2.5, 0, 5, 10, 0]])
    scores = torch.tensor([0.9, 0.8])
    assert nms_rotated(boxes, scores, 0.5).tolist() == [0, 1]
    assert nms_rotated(boxes, scores, 0.499).tolist() == [0]


def test_opcheck():
    boxes, scores = make_boxes(30)
    torch.library.opcheck(torch.ops.mmturbox.nms_rotated.default,
                          (boxes, scores, 0.3))


@ON_DEVICE
def test_two_runs_and_other_thread_counts_are_equal():
    boxes, scores = make_boxes(900)
    first = nms_rotated(boxes, scores, 0.3)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(first, nms_rotated(boxes, scores, 0.3))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('call, error', [
    (lambda b, s: nms_rotated(b[:, :4], s, 0.5), ValueError),
    (lambda b, s: nms_rotated(b, s[:1], 0.5), ValueError),
    (lambda b, s: nms_rotated(b, s.int(), 0.5), TypeError),
])
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match='must'):
        call(*make_boxes(3))
