"""Suppression within each class of each sample."""

import pytest
import torch

from mmturbox.ops import (
    batched_nms,
    batched_nms_padded,
    box_iou_rotated,
    circle_nms,
    multiclass_nms,
    nms,
    nms3d,
    nms_rotated,
)
from mmturbox.ops.batched_nms import KINDS, batched_nms_reference
from mmturbox.ops.nms import aligned_iou

FLOATS = [torch.float32, torch.float64]
OP = torch.ops.mmturbox.batched_nms.default
NUMBERS = {'aligned': 0, 'rotated': 1, 'circle': 2}
THRESHOLD = {'aligned': 0.4, 'rotated': 0.2, 'bev': 0.2, 'circle': 2.5}


def make_input(number, kind='aligned', dtype=torch.float32, seed=0,
               num_samples=3, num_classes=4):
    """Crowded boxes of several samples and classes, many scores equal."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(number, KINDS[kind], generator=generator) * 20
    if kind == 'aligned':
        boxes[:, 2:] = boxes[:, :2] + 1 + boxes[:, 2:]
    if kind in ('rotated', 'bev'):
        boxes[:, 2:] = 0.5 + boxes[:, 2:] * 0.3
    scores = torch.randint(1, 25, (number, ), generator=generator) / 25
    classes = torch.randint(num_classes, (number, ), generator=generator)
    samples = torch.randint(num_samples, (number, ), generator=generator)
    return boxes.to(dtype), scores.to(dtype), classes, samples


def suppresses(kind, a, b):
    if kind == 'aligned':
        return bool(aligned_iou(a, b[None], 0) > THRESHOLD[kind])
    if kind == 'circle':
        return float((a - b).square().sum()) <= THRESHOLD[kind]
    if kind == 'bev':
        a, b = a[[0, 1, 3, 4, 6]], b[[0, 1, 3, 4, 6]]
    return bool(box_iou_rotated(a[None], b[None]) > THRESHOLD[kind])


def plain(kind, boxes, scores, classes, samples, num_samples):
    """Box by box, in Python."""
    out = [[] for _ in range(num_samples)]
    for i in sorted(range(len(boxes)), key=lambda i: -float(scores[i])):
        mine = out[int(samples[i])]
        if not any(classes[k] == classes[i]
                   and suppresses(kind, boxes[k], boxes[i]) for k in mine):
            mine.append(i)
    return out


def rows(keep, counts):
    assert keep.dtype == counts.dtype == torch.int64
    for row, count in zip(keep, counts.tolist(), strict=True):
        assert (row[count:] == -1).all() and (row[:count] >= 0).all()
    return [row[:count].tolist()
            for row, count in zip(keep, counts.tolist(), strict=True)]


@pytest.mark.parametrize('dtype', FLOATS)
@pytest.mark.parametrize('kind', list(KINDS))
def test_each_class_of_each_sample_is_suppressed_apart(device, kind, dtype):
    inputs = make_input(150, kind, dtype)
    want = plain(kind, *inputs, 3)
    assert 20 < sum(map(len, want)) < 140
    boxes, scores, classes, samples = (t.to(device) for t in inputs)
    keep, counts = batched_nms(
        boxes, scores, THRESHOLD[kind], classes, kind=kind, samples=samples,
        num_samples=3)
    assert keep.shape == (3, 150)
    assert rows(keep.cpu(), counts.cpu()) == want


@pytest.mark.parametrize('number', [1, 63, 64, 65, 700])
@pytest.mark.parametrize('kind', ['aligned', 'rotated', 'circle'])
def test_native_kernels_equal_the_reference(device, kind, number):
    boxes, scores, classes, samples = make_input(
        number, kind, num_samples=2, num_classes=2)
    valid = scores > 0.1
    for ids in ((None, None, None), (classes, None, valid),
                (None, samples, None), (classes, samples, valid)):
        arguments = (boxes, scores, *ids, NUMBERS[kind], THRESHOLD[kind], 0,
                     2, 40)
        want = batched_nms_reference(*arguments)
        found = OP(*(a.to(device) if torch.is_tensor(a) else a
                     for a in arguments))
        for a, b in zip(found, want, strict=True):
            assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize('num_classes', [None, 2])
def test_more_boxes_than_one_round_of_the_kernel_takes(device, num_classes):
    """A crowd, and behind its 4,140 boxes some that it leaves alone."""
    boxes, scores, _, _ = make_input(4300)
    boxes[:4140, 2:] = boxes[:4140, :2] + 18
    boxes[4140:] += 100
    scores[4140:] *= 0.01
    classes = None
    if num_classes is not None:
        classes = torch.arange(4300) * 7919 % num_classes
    want = batched_nms_reference(
        boxes, scores, classes, None, None, 0, 0.4, 0, 1, 4300)[0]
    last = scores[want[0][want[0] >= 4140]]
    assert len(last) > 50 and 5 < int((want >= 0).sum()) - len(last) < 200
    keep = multiclass_nms(
        boxes.to(device), scores.to(device), 0.4,
        None if classes is None else classes.to(device)).cpu()
    assert torch.equal(keep, want[0][want[0] >= 0])


@pytest.mark.parametrize('kind', ['aligned', 'rotated', 'bev', 'circle'])
def test_one_class_equals_the_plain_operators(device, kind):
    boxes, scores = (t.to(device) for t in make_input(120, kind)[:2])
    single = {'aligned': nms, 'rotated': nms_rotated, 'bev': nms3d,
              'circle': circle_nms}[kind]
    want = single(boxes, scores, THRESHOLD[kind])
    keep = multiclass_nms(boxes, scores, THRESHOLD[kind], kind=kind)
    assert torch.equal(keep, want)
    few = multiclass_nms(
        boxes, scores, THRESHOLD[kind], kind=kind, max_out=7)
    assert torch.equal(few, want[:7])


def test_padded_form_equals_one_call_a_sample(device):
    parts = [make_input(50, 'bev', seed=seed) for seed in range(4)]
    boxes, scores, classes = (
        torch.stack([part[i] for part in parts]).to(device) for i in range(3))
    valid = scores > 0.2
    keep, counts = batched_nms_padded(
        boxes, scores, 0.2, classes, kind='bev', valid=valid, max_out=30)
    assert keep.shape == (4, 30)
    for b in range(4):
        want = multiclass_nms(
            boxes[b], scores[b], 0.2, classes[b], kind='bev', valid=valid[b],
            max_out=30)
        assert keep[b, :int(counts[b])].tolist() == want.tolist()
        assert (keep[b, int(counts[b]):] == -1).all()
        assert valid[b][want].all() and 5 < len(want) <= 30


def test_coordinates_far_out_keep_their_precision(device):
    """Shifting by class would lose the gap between these two boxes."""
    boxes = torch.tensor([[1e6, 0, 1e6 + 1, 1], [1e6 + 1, 0, 1e6 + 2, 1]])
    scores, classes = torch.tensor([0.9, 0.8]), torch.tensor([900, 900])
    keep = multiclass_nms(
        boxes.to(device), scores.to(device), 0.1, classes.to(device))
    assert keep.tolist() == [0, 1]


@pytest.mark.parametrize('number', [10, 17, 64, 100, 1000])
def test_identical_boxes_of_one_score_keep_the_first(device, number):
    """KF-A9: of every class."""
    boxes = torch.tensor([[1., 2, 11, 12]], device=device).repeat(number, 1)
    scores = torch.full((number, ), 0.5, device=device)
    assert multiclass_nms(boxes, scores, 0.5).tolist() == [0]
    classes = torch.arange(number, device=device) // 3 % 2
    assert multiclass_nms(boxes, scores, 0.5, classes).tolist() == [0, 3]


@pytest.mark.parametrize('kind', list(KINDS))
def test_zero_boxes_one_box_and_none_that_is_valid(device, kind):
    """KF-A8."""
    boxes, scores, classes, samples = (
        t.to(device) for t in make_input(5, kind))
    for number in (0, 1):
        keep, counts = batched_nms(
            boxes[:number], scores[:number], 0.5, classes[:number],
            kind=kind, samples=samples[:number] * 0 + 1, num_samples=2)
        assert keep.shape == (2, number) and keep.dtype == torch.int64
        assert counts.tolist() == [0, number]
    assert len(multiclass_nms(boxes, scores, 0.5, kind=kind,
                              valid=scores > 2)) == 0
    assert len(multiclass_nms(boxes, scores, 0.5, kind=kind, max_out=0)) == 0
    keep, counts = batched_nms_padded(
        boxes[None, :0], scores[None, :0], 0.5, kind=kind)
    assert keep.shape == (1, 0) and counts.tolist() == [0]


def test_boxes_of_no_sample_are_left_out(device):
    boxes, scores, classes, samples = (
        t.to(device) for t in make_input(80, num_samples=4))
    keep, counts = batched_nms(
        boxes, scores, 0.4, classes, samples=samples - 1, num_samples=2)
    want = [multiclass_nms(boxes, scores, 0.4, classes, valid=samples == s)
            for s in (1, 2)]
    assert rows(keep.cpu(), counts.cpu()) == [w.tolist() for w in want]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_float32_result(device, dtype):
    """KF-A7."""
    boxes, scores, classes, _ = make_input(90, 'rotated', dtype)
    arguments = boxes.to(device), scores.to(device), 0.2, classes.to(device)
    wide = (arguments[0].float(), arguments[1].float(), *arguments[2:])
    assert torch.equal(
        multiclass_nms(*arguments, kind='rotated'),
        multiclass_nms(*wide, kind='rotated'))


def test_strided_boxes_and_ids_of_any_integer_type(device):
    """KF-A6."""
    boxes, scores, classes, samples = (
        t.to(device) for t in make_input(90, 'rotated'))
    options = dict(kind='rotated', num_samples=3)
    want = batched_nms(
        boxes, scores, 0.2, classes, samples=samples, **options)
    wide = torch.randn(90, 11, device=device)
    wide[:, 1:11:2] = boxes
    found = batched_nms(
        wide[:, 1:11:2], torch.stack([scores] * 2, 1)[:, 1], 0.2,
        torch.stack([classes] * 2, 1).int()[:, 0],
        samples=samples.to(torch.uint8), **options)
    for a, b in zip(found, want, strict=True):
        assert torch.equal(a, b)


def test_nan_and_negative_thresholds(device):
    boxes, scores, _, _ = make_input(40)
    boxes[3] = float('nan')
    for threshold in (-0.5, 0., 1.):
        want = batched_nms_reference(boxes, scores, None, None, None, 0,
                                     threshold, 0, 1, 40)[0]
        keep = batched_nms(boxes.to(device), scores.to(device), threshold)[0]
        assert torch.equal(keep.cpu(), want)


def test_opcheck():
    boxes, scores, classes, samples = make_input(20)
    for kind, ids in ((0, (classes, samples, scores > 0.3)),
                      (2, (None, None, None))):
        torch.library.opcheck(OP, (boxes[:, :2] if kind else boxes, scores,
                                   *ids, kind, 0.4, 0, 3, 9))


def test_runs_and_thread_counts_agree_to_the_bit(device):
    boxes, scores, classes, samples = (
        t.to(device) for t in make_input(400, 'rotated', num_classes=2))
    threads = torch.get_num_threads()
    try:
        runs = []
        for count in (1, 2, 2):
            torch.set_num_threads(count)
            runs.append(batched_nms(
                boxes, scores, 0.2, classes, kind='rotated', samples=samples,
                num_samples=3)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(runs[0], runs[1]) and torch.equal(runs[1], runs[2])


@pytest.mark.parametrize('change, error', [
    (dict(kind='hexagon'), ValueError),
    (dict(kind='rotated'), ValueError),
    (dict(scores=torch.ones(4)), ValueError),
    (dict(classes=torch.ones(5)), TypeError),
    (dict(classes=torch.ones(4).long()), ValueError),
    (dict(valid=torch.ones(4).bool()), ValueError),
    (dict(offset=2), ValueError),
    (dict(max_out=-1), ValueError),
    (dict(boxes=torch.ones(5, 4).long()), TypeError),
])
def test_bad_input_is_named(change, error):
    boxes, scores, _, _ = make_input(5)
    arguments = dict(boxes=boxes, scores=scores, threshold=0.5, **{})
    with pytest.raises(error, match='must'):
        batched_nms(**{**arguments, **change})


def test_bad_padded_input_is_named():
    boxes, scores, _, _ = make_input(6)
    with pytest.raises(ValueError, match='must'):
        batched_nms_padded(boxes, scores, 0.5)
    with pytest.raises(ValueError, match='must'):
        batched_nms_padded(boxes.view(2, 3, 4), scores.view(2, 3), 0.5,
                           torch.ones(6).long())
