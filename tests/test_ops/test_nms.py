"""Hard, soft and grouped suppression of axis-aligned boxes."""

import pytest
import torch

from mmturbox.ops import nms, nms_match, soft_nms
from mmturbox.ops.nms import (
    SOFT_METHODS,
    nms_match_reference,
    nms_reference,
    soft_nms_reference,
)

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
OPS = torch.ops.mmturbox

ON_DEVICE = pytest.mark.usefixtures('on_device')


@pytest.fixture
def on_device(device):
    """Tensors are made on the device that the operators run on."""
    with torch.device(device):
        yield


def make_boxes(number, dtype=torch.float32, seed=0):
    """Boxes that overlap a lot, and scores of which many are equal."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device('cpu'):
        corner, size = torch.rand(2, number, 2, generator=generator) * 40
        scores = torch.randint(1, 20, (number, ), generator=generator) / 20
        boxes = torch.cat([corner, corner + size], 1)
    device = torch.get_default_device()
    return boxes.to(device, dtype), scores.to(device, dtype)


def plain_nms(boxes, scores, threshold, offset):
    """Independent of the package: Python floats, pair by pair."""
    rows = boxes.double().tolist()

    def iou(a, b):
        w = min(a[2], b[2]) - max(a[0], b[0]) + offset
        h = min(a[3], b[3]) - max(a[1], b[1]) + offset
        areas = [(r[2] - r[0] + offset) * (r[3] - r[1] + offset)
                 for r in (a, b)]
        shared = max(w, 0) * max(h, 0)
        return shared / (sum(areas) - shared)

    keep = []
    for i in sorted(range(len(rows)), key=lambda i: -float(scores[i])):
        if all(iou(rows[k], rows[i]) <= threshold for k in keep):
            keep.append(i)
    return keep


@ON_DEVICE
@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('dtype', FLOATS)
def test_nms_agrees_with_plain_python_and_with_its_reference(dtype, offset):
    boxes, scores = make_boxes(150, dtype)
    keep = nms(boxes, scores, 0.4, offset)
    assert 10 < len(keep) < 140
    assert keep.dtype == torch.int64
    assert keep.tolist() == plain_nms(boxes, scores, 0.4, offset)
    assert torch.equal(keep, nms_reference(boxes, scores, 0.4, offset))


def test_nms_splits_over_threads_without_changing_its_answer():
    boxes, scores = make_boxes(9000)
    boxes = boxes + 40 * torch.randint(
        60, (9000, 1), generator=torch.Generator().manual_seed(1))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = nms(boxes, scores, 0.5)
        torch.set_num_threads(2)
        two = nms(boxes, scores, 0.5)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)


@ON_DEVICE
@pytest.mark.parametrize('number', [2, 10, 17, 63, 64, 65, 100, 1000])
def test_identical_boxes_of_one_score_keep_the_first(number):
    """KF-A9."""
    boxes = torch.tensor([[1., 2., 11., 12.]]).repeat(number, 1)
    scores = torch.full((number, ), 0.5)
    assert nms(boxes, scores, 0.5).tolist() == [0]
    groups = nms_match(torch.cat([boxes, scores[:, None]], 1), 0.5)
    assert [group.tolist() for group in groups] == [list(range(number))]
    for method in SOFT_METHODS:
        keep = soft_nms(boxes, scores, 0.5, method=method, min_score=0.2)[1]
        assert keep.tolist() == [0]


@ON_DEVICE
def test_soft_nms_takes_equal_scores_in_the_order_of_their_indices():
    """KF-A9: also after other boxes were dropped from between them."""
    boxes = torch.tensor([[100. * i, 0, 100. * i + 10, 10]
                          for i in range(40)])
    boxes[5::5] = boxes[0]
    boxes, scores = boxes[:39], torch.full((39, ), 0.5)
    keep = soft_nms(boxes, scores, method='naive')[1]
    assert keep.tolist() == [i for i in range(39) if i == 0 or i % 5]


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS + HALVES)
def test_zero_boxes_one_box_and_none_above_the_threshold(dtype):
    """KF-A8."""
    boxes, scores = make_boxes(6, dtype)
    for number in (0, 1):
        keep = nms(boxes[:number], scores[:number], 0.5)
        assert keep.dtype == torch.int64
        assert keep.tolist() == list(range(number))
        dets, inds = soft_nms(boxes[:number], scores[:number])
        assert dets.shape == (number, 5) and dets.dtype == dtype
        assert inds.dtype == torch.int64
        assert inds.tolist() == list(range(number))
    assert nms_match(boxes.new_empty((0, 5)), 0.5) == []
    dets, inds = soft_nms(boxes, scores * 1e-3, min_score=0.5)
    assert len(dets) == len(inds) == 1


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('method', list(SOFT_METHODS))
def test_soft_nms_agrees_with_its_reference(method, dtype):
    boxes, scores = make_boxes(50, dtype)
    # Distinct scores: by a rounding error equal ones may change places.
    scores = scores + torch.arange(50, dtype=dtype) * 1e-4
    for offset in (0, 1):
        dets, inds = soft_nms(
            boxes, scores, 0.3, 0.4, 0.05, method, offset)
        want, where = soft_nms_reference(
            boxes, scores, 0.3, 0.4, 0.05, SOFT_METHODS[method], offset)
        assert 5 < len(inds) < 50
        assert torch.equal(inds, where)
        torch.testing.assert_close(dets, want)
        assert torch.equal(dets[:, :4], boxes[inds])


@ON_DEVICE
def test_soft_nms_methods_weigh_as_documented():
    boxes = torch.tensor([[0., 0, 10, 10], [0, 5, 10, 15], [0, 20, 10, 30]],
                         dtype=torch.float64)
    scores = torch.tensor([0.9, 0.8, 0.7], dtype=torch.float64)
    iou = 1 / 3

    def second(method, threshold=0.3):
        dets, inds = soft_nms(boxes, scores, threshold, 0.5, 0., method)
        return float(dets[inds == 1, 4])

    assert second('naive') == 0
    assert second('linear') == pytest.approx(0.8 * (1 - iou))
    assert second('gaussian') == pytest.approx(
        0.8 * torch.tensor(-iou**2 / 0.5, dtype=torch.float64).exp().item())
    assert second('linear', threshold=0.4) == 0.8


@ON_DEVICE
@pytest.mark.parametrize('dtype', FLOATS)
def test_nms_match_agrees_with_its_reference_and_covers_all_boxes(dtype):
    boxes, scores = make_boxes(150, dtype)
    dets = torch.cat([boxes, scores[:, None]], 1)
    groups = nms_match(dets, 0.4)
    members, sizes = nms_match_reference(dets, 0.4)
    assert [len(group) for group in groups] == sizes.tolist()
    assert torch.equal(torch.cat(groups), members)
    assert sorted(members.tolist()) == list(range(150))
    assert torch.equal(
        torch.stack([group[0] for group in groups]),
        nms(boxes, scores, 0.4))


@ON_DEVICE
def test_a_threshold_that_is_met_exactly():
    boxes = torch.tensor([[0., 0, 10, 10], [0, 0, 5, 10]])
    scores = torch.tensor([0.9, 0.8])
    assert nms(boxes, scores, 0.5).tolist() == [0, 1]
    groups = nms_match(torch.cat([boxes, scores[:, None]], 1), 0.5)
    assert [group.tolist() for group in groups] == [[0, 1]]


@ON_DEVICE
def test_nan_boxes_suppress_nothing():
    boxes, scores = make_boxes(20)
    want = nms(boxes, scores, 0.4)
    bad = torch.full((3, 4), float('nan'))
    keep = nms(
        torch.cat([bad, boxes]), torch.cat([torch.ones(3), scores]), 0.4)
    assert keep[:3].tolist() == [0, 1, 2]
    assert torch.equal(keep[3:] - 3, want)


@ON_DEVICE
def test_strided_boxes():
    boxes, scores = make_boxes(60)
    wide = torch.randn(60, 9)
    wide[:, 1:9:2] = boxes
    view, strided_scores = wide[:, 1:9:2], torch.stack([scores] * 2, 1)[:, 1]
    assert not view.is_contiguous() and not strided_scores.is_contiguous()
    assert torch.equal(
        nms(view, strided_scores, 0.4), nms(boxes, scores, 0.4))
    assert torch.equal(
        soft_nms(view, strided_scores)[0], soft_nms(boxes, scores)[0])


@ON_DEVICE
@pytest.mark.parametrize('dtype', HALVES)
def test_half_precision_gives_the_float32_result(dtype):
    boxes, scores = make_boxes(70, dtype)
    full = boxes.float(), scores.float()
    assert torch.equal(nms(boxes, scores, 0.4), nms(*full, 0.4))
    dets, inds = soft_nms(boxes, scores)
    want, where = soft_nms(*full)
    assert torch.equal(inds, where)
    assert torch.equal(dets, want.to(dtype))


def test_opcheck():
    boxes, scores = make_boxes(30)
    torch.library.opcheck(OPS.nms.default, (boxes, scores, 0.4, 0))
    torch.library.opcheck(OPS.nms_match.default,
                          (torch.cat([boxes, scores[:, None]], 1), 0.4))
    for method in SOFT_METHODS.values():
        torch.library.opcheck(OPS.soft_nms.default,
                              (boxes, scores, 0.3, 0.5, 1e-3, method, 1))


@ON_DEVICE
def test_two_runs_are_equal():
    boxes, scores = make_boxes(90)
    for run in (lambda: (nms(boxes, scores, 0.4), ),
                lambda: soft_nms(boxes, scores, method='gaussian')):
        for first, second in zip(run(), run(), strict=True):
            assert torch.equal(first, second)


@pytest.mark.parametrize('call, error', [
    (lambda b, s: nms(b[:, :3], s, 0.5), ValueError),
    (lambda b, s: nms(b, s[:-1], 0.5), ValueError),
    (lambda b, s: nms(b.long(), s, 0.5), TypeError),
    (lambda b, s: nms(b, s.long(), 0.5), TypeError),
    (lambda b, s: nms(b, s, 0.5, offset=2), ValueError),
    (lambda b, s: nms_match(b, 0.5), ValueError),
    (lambda b, s: soft_nms(b, s, method='cubic'), ValueError),
])
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match='must'):
        call(*make_boxes(4))
