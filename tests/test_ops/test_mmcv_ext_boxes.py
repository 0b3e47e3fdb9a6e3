"""mmcv's and mmdet3d's suppression functions over our ``mmcv._ext``."""

import numpy as np
import pytest
import torch

pytest.importorskip('mmcv')

from mmturbox import ops  # noqa: E402
from mmturbox.ops import mmcv_ext  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def make_boxes(number, width=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(number, width, generator=generator) * 20
    if width == 4:
        boxes[:, 2:] += boxes[:, :2]
    elif width == 7:
        boxes[:, 3:6] += 1
    return boxes, torch.rand(number, generator=generator)


def test_nms_filters_and_limits(mmcv_ops):
    boxes, scores = make_boxes(80)
    dets, inds = mmcv_ops.nms(boxes, scores, 0.4)
    assert torch.equal(inds, ops.nms(boxes, scores, 0.4))
    assert torch.equal(dets[:, 4], scores[inds])
    some = mmcv_ops.nms(
        boxes, scores, 0.4, score_threshold=0.5, max_num=7)[1]
    assert torch.equal(some, inds[scores[inds] > 0.5][:7])
    as_numpy = mmcv_ops.nms(boxes.numpy(), scores.numpy(), 0.4)[1]
    assert np.array_equal(as_numpy, inds.numpy())


def test_published_values_of_axis_aligned_boxes(mmcv_ops):
    """The figures of mmcv's own tests and docstrings."""
    boxes = torch.tensor([[6., 3, 8, 7], [3, 6, 9, 11], [3, 7, 10, 12],
                          [1, 4, 13, 7]])
    scores = torch.tensor([0.6, 0.9, 0.7, 0.2])
    assert mmcv_ops.nms(boxes, scores, 0.3)[1].tolist() == [1, 0, 3]
    for method, want, inds in (
            ('linear', [0.9, 0.6, 0.29024392, 0.2], [1, 0, 2, 3]),
            ('gaussian', [0.9, 0.59630775, 0.35275510, 0.18650459],
             [1, 0, 2, 3]),
            ('naive', [0.9, 0.6, 0.2], [1, 0, 3])):
        dets, keep = mmcv_ops.soft_nms(boxes, scores, 0.3, 0.5, 0.01, method)
        torch.testing.assert_close(dets[:, 4], torch.tensor(want))
        assert keep.tolist() == inds
    boxes = np.array([[4., 3, 5, 3], [4, 3, 5, 4]] + [[3, 1, 3, 1]] * 4,
                     dtype=np.float32)
    scores = np.array([0.9, 0.9, 0.5, 0.5, 0.4, 0.0], dtype=np.float32)
    dets, inds = mmcv_ops.soft_nms(boxes, scores, 0.6, sigma=0.5)
    assert len(dets) == len(inds) == 5
    assert mmcv_ops.nms_match(np.array([]), 0.6) == []


def test_published_values_of_rotated_boxes(mmcv_ops):
    """The figures of mmcv's own tests."""
    dets = torch.tensor([[6., 3, 8, 7, 0.5], [3, 6, 9, 11, 0.6],
                         [3, 7, 10, 12, 0.3], [1, 4, 13, 7, 0.6]])
    scores = torch.tensor([0.7, 0.8, 0.5, 0.9])
    for labels in (None, torch.tensor([1., 0, 1, 0])):
        keep = mmcv_ops.nms_rotated(dets, scores, 0.5, labels)[1]
        assert keep.tolist() == [3, 1, 0]
    boxes1 = torch.tensor([[1., 1, 3, 4, 0.5], [2, 2, 3, 4, 0.6],
                           [7, 7, 8, 8, 0.4]])
    boxes2 = torch.tensor([[0., 2, 2, 5, 0.3], [2, 1, 3, 3, 0.5],
                           [5, 5, 6, 7, 0.4]])
    for mode, want in (
            ('iou', [[0.3708, 0.4351, 0], [0.1104, 0.4487, 0.0424],
                     [0, 0, 0.3622]]),
            ('iof', [[0.4959, 0.5306, 0], [0.1823, 0.5420, 0.1832],
                     [0, 0, 0.4404]])):
        torch.testing.assert_close(
            mmcv_ops.box_iou_rotated(boxes1, boxes2, mode),
            torch.tensor(want), atol=1e-4, rtol=0)


def test_published_values_of_3d_boxes(mmcv_ops):
    """The figures of mmcv's own tests."""
    boxes1 = torch.tensor([[1., 1, 1, 2, 2, 2, 0], [2, 2, 2, 2, 2, 2, 0],
                           [3, 3, 3, 3, 2, 2, 0]])
    boxes2 = boxes1[:1].repeat(3, 1)
    boxes2[:, 6] = torch.tensor([0, np.pi / 2, np.pi / 4])
    octagon = (8 + 8 * 2**0.5) / (3 + 2 * 2**0.5)
    torch.testing.assert_close(
        mmcv_ops.boxes_overlap_bev(boxes1, boxes2),
        torch.tensor([[4, 4, octagon], [1, 1, 1], [0, 0, 0]]),
        atol=1e-4, rtol=0)
    torch.testing.assert_close(
        mmcv_ops.boxes_iou3d(boxes1, boxes2),
        torch.tensor([[1, 1, 0.5**0.5], [1 / 15] * 3, [0.] * 3]),
        atol=1e-4, rtol=0)
    boxes = torch.tensor([[1., 1, 1, 2, 2, 2, 0], [2, 2, 2, 2, 2, 2, 0],
                          [3, 3, 3, 3, 2, 2, 0.3], [3, 3, 3, 3, 2, 2, 0],
                          [3, 3.2, 3.2, 3, 2, 2, 0.3]])
    scores = torch.tensor([0.6, 0.9, 0.1, 0.2, 0.15])
    assert mmcv_ops.nms3d(boxes, scores, 0.3).tolist() == [1, 0, 3]
    assert mmcv_ops.nms3d_normal(boxes, scores, 0.3).tolist() == [1, 0, 3]
    random = np.random.RandomState(42)
    boxes = torch.from_numpy(random.rand(555, 7).astype(np.float32))
    scores = torch.from_numpy(random.rand(555).astype(np.float32))
    assert len(mmcv_ops.nms3d_normal(boxes, scores, 0.3)) == 148
    # By exact areas (polygon clipping agrees) it is 179; mmcv's kernel,
    # which takes corners within 1 cm of these half-metre boxes, keeps 176.
    assert len(mmcv_ops.nms3d(boxes, scores, 0.3)) == 179


@pytest.mark.parametrize('method', ['naive', 'linear', 'gaussian'])
def test_soft_nms(mmcv_ops, method):
    boxes, scores = make_boxes(60)
    dets, inds = mmcv_ops.soft_nms(boxes, scores, 0.3, method=method)
    want, where = ops.soft_nms(boxes, scores, 0.3, method=method)
    assert torch.equal(inds, where) and torch.equal(dets, want)


def test_nms_match(mmcv_ops):
    boxes, scores = make_boxes(50)
    dets = torch.cat([boxes, scores[:, None]], 1)
    got = mmcv_ops.nms_match(dets, 0.4)
    for group, want in zip(got, ops.nms_match(dets, 0.4), strict=True):
        assert torch.equal(group, want)
    assert mmcv_ops.nms_match(dets[:0], 0.4) == []


def test_nms_rotated(mmcv_ops):
    boxes, scores = make_boxes(60, 5)
    want = ops.nms_rotated(boxes, scores, 0.2)
    # mmcv takes labels and, on every device, suppresses across them.
    for labels in (None, torch.arange(60) % 4):
        dets, keep = mmcv_ops.nms_rotated(boxes, scores, 0.2, labels)
        assert torch.equal(keep, want)
        assert torch.equal(dets[:, :5], boxes[keep])
    flip = torch.tensor([1, 1, 1, 1, -1])
    assert torch.equal(
        mmcv_ops.nms_rotated(boxes, scores, 0.2, clockwise=False)[1],
        ops.nms_rotated(boxes * flip, scores, 0.2))


@pytest.mark.parametrize('config, width', [
    (dict(type='nms', iou_threshold=0.5), 4),
    (dict(type='soft_nms', iou_threshold=0.5), 4),
    (dict(type='nms_rotated', iou_threshold=0.5), 5),
    (dict(type='nms', iou_threshold=0.5, split_thr=10), 4),
    (None, 4),
])
@pytest.mark.parametrize('class_agnostic', [False, True])
def test_batched_nms(mmcv_ops, config, width, class_agnostic):
    """KF-A8: also for zero boxes, where stock mmcv dies."""
    boxes, scores = make_boxes(40, width)
    labels = torch.arange(40) % 3
    for number in (0, 1, 40):
        dets, keep = mmcv_ops.batched_nms(
            boxes[:number], scores[:number], labels[:number], config,
            class_agnostic=class_agnostic)
        assert dets.shape == (len(keep), width + 1)
        assert keep.dtype == torch.int64
        assert len(keep) == number if number < 2 else len(keep) > 5
        assert torch.equal(dets[:, :width], boxes[keep])


def test_batched_nms_keeps_boxes_of_other_classes(mmcv_ops):
    boxes = torch.tensor([[0., 0, 10, 10]]).repeat(4, 1)
    scores, labels = torch.ones(4), torch.tensor([0, 1, 0, 1])
    config = dict(type='nms', iou_threshold=0.5)
    keep = mmcv_ops.batched_nms(boxes, scores, labels, config)[1]
    assert keep.tolist() == [0, 1]
    keep = mmcv_ops.batched_nms(boxes, scores, labels, config, True)[1]
    assert keep.tolist() == [0]


def test_zero_rotated_boxes_by_keyword(mmcv_ops):
    """KF-A8: stock mmcv returns five columns and None."""
    dets, keep = mmcv_ops.nms_rotated(
        dets=torch.zeros(0, 5), scores=torch.zeros(0), iou_threshold=0.5)
    assert dets.shape == (0, 6)
    assert keep.shape == (0, ) and keep.dtype == torch.int64


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_near_copies_in_half_precision(mmcv_ops, dtype):
    """KF-A7: four boxes at IoU > 0.9 pairwise reduce to two."""
    boxes = torch.tensor([[10., 10, 20, 8, 0.5], [10.125, 10, 20, 8, 0.5],
                          [80, 80, 16, 10, -1], [80, 80.125, 16, 10, -1]])
    scores = torch.tensor([0.5, 0.75, 0.625, 0.25])
    dets, keep = mmcv_ops.nms_rotated(boxes.to(dtype), scores.to(dtype), 0.5)
    assert keep.tolist() == [1, 2] and dets.dtype == dtype


@pytest.mark.parametrize('number', [10, 17, 100, 1000])
def test_ties_keep_the_first_box(mmcv_ops, number):
    """KF-A9: stock nms3d sorts by an unstable sort."""
    scores = torch.full((number, ), 0.5)
    flat = torch.tensor([[1., 2, 11, 12]]).repeat(number, 1)
    assert mmcv_ops.nms(flat, scores, 0.5)[1].tolist() == [0]
    turned = torch.tensor([[1., 2, 11, 12, 0.3]]).repeat(number, 1)
    assert mmcv_ops.nms_rotated(turned, scores, 0.5)[1].tolist() == [0]
    solid = torch.tensor([[1., 2, 0, 4, 2, 1, 0.3]]).repeat(number, 1)
    assert mmcv_ops.nms3d(solid, scores, 0.5).tolist() == [0]
    assert mmcv_ops.nms3d_normal(solid, scores, 0.5).tolist() == [0]


def test_3d_functions(mmcv_ops):
    boxes, scores = make_boxes(60, 7)
    for name in ('nms3d', 'nms3d_normal'):
        want = getattr(ops, name)(boxes, scores, 0.1)
        assert torch.equal(getattr(mmcv_ops, name)(boxes, scores, 0.1), want)
        assert len(getattr(mmcv_ops, name)(boxes[:0], scores[:0], 0.1)) == 0
    assert torch.equal(
        mmcv_ops.boxes_overlap_bev(boxes, boxes),
        ops.boxes_overlap_bev(boxes, boxes))
    iou = mmcv_ops.boxes_iou3d(boxes, boxes)
    torch.testing.assert_close(iou.diagonal(), torch.ones(60))


def test_extension_calls_fill_the_tensors_that_mmcv_hands_over(mmcv_ops):
    from mmcv import _ext
    boxes, scores = make_boxes(50, 7)
    order = scores.sort(descending=True, stable=True)[1]
    for call, operator in ((_ext.iou3d_nms3d_forward, ops.nms3d),
                           (_ext.iou3d_nms3d_normal_forward,
                            ops.nms3d_normal)):
        keep = torch.full((50, ), -7)
        num_out = torch.zeros((), dtype=torch.int64)
        assert call(
            boxes[order], keep, num_out, nms_overlap_thresh=0.1) is None
        want = operator(boxes, scores, 0.1)
        assert torch.equal(order[keep[:num_out]], want)
        assert (keep[len(want):] == -7).all()


def test_mmdet3d_inference_functions_run_on_the_cpu(mmcv_ops):
    layers = pytest.importorskip('mmdet3d.models.layers')
    from mmengine.config import ConfigDict
    boxes, scores = make_boxes(60, 5)
    boxes[:, 2:4] += boxes[:, :2]
    centred = torch.cat([(boxes[:, :2] + boxes[:, 2:4]) / 2,
                         boxes[:, 2:4] - boxes[:, :2], boxes[:, 4:]], 1)
    want = ops.nms_rotated(centred, scores, 0.2)
    assert torch.equal(layers.nms_bev(boxes, scores, 0.2), want)
    assert torch.equal(
        layers.nms_bev(boxes, scores, 0.2, post_max_size=3), want[:3])
    assert layers.nms_bev(boxes[:0], scores[:0], 0.2).shape == (0, )
    assert torch.equal(
        layers.nms_normal_bev(boxes, scores, 0.2),
        ops.nms(boxes[:, :4], scores, 0.2))
    solid = make_boxes(60, 7)[0]
    both = torch.stack([scores, 1 - scores, torch.zeros(60)], 1)
    for rotate in (True, False):
        config = ConfigDict(use_rotate_nms=rotate, nms_thr=0.2)
        out, out_scores, labels = layers.box3d_multiclass_nms(
            solid, boxes, both, 0.3, 15, config)
        assert len(out) == len(out_scores) == len(labels) == 15
        assert set(labels.tolist()) == {0, 1}


@pytest.mark.parametrize('mode', ['iou', 'iof'])
@pytest.mark.parametrize('offset', [0, 1])
def test_overlap_of_axis_aligned_boxes(mmcv_ops, mode, offset):
    from mmcv.ops.bbox import _bbox_overlaps_cpu
    boxes1, boxes2 = make_boxes(30)[0], make_boxes(20, seed=1)[0]
    torch.testing.assert_close(
        mmcv_ops.bbox_overlaps(boxes1, boxes2, mode, offset=offset),
        _bbox_overlaps_cpu(boxes1, boxes2, mode, offset=offset))
    torch.testing.assert_close(
        mmcv_ops.bbox_overlaps(boxes1[:20], boxes2, mode, True, offset),
        _bbox_overlaps_cpu(boxes1[:20], boxes2, mode, True, offset))


@pytest.mark.parametrize('name, width', [('diff_iou_rotated_2d', 5),
                                         ('diff_iou_rotated_3d', 7)])
def test_differentiable_iou_through_sorted_vertices(mmcv_ops, name, width):
    """mmcv's own autograd over our order agrees with our closed form."""
    pairs = [make_boxes(40, width, seed)[0].double().view(2, 20, width) / 4
             for seed in (0, 1)]
    results = []
    for module in (mmcv_ops, ops):
        leaves = [pair.clone().requires_grad_() for pair in pairs]
        iou = getattr(module, name)(*leaves)
        iou.sum().backward()
        results.append([iou.detach(), *(leaf.grad for leaf in leaves)])
    assert (results[0][0] > 0).sum() > 15
    for stock, ours in zip(*results, strict=True):
        torch.testing.assert_close(stock, ours, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize('config, width', [
    (dict(type='nms', iou_threshold=0.4), 4),
    (dict(type='nms', iou_threshold=0.4, score_threshold=0.3, max_num=9), 4),
    (dict(iou_threshold=0.4, offset=1, split_thr=10), 4),
    (dict(type='nms_rotated', iou_threshold=0.2), 5),
])
@pytest.mark.parametrize('class_agnostic', [False, True])
def test_batched_nms_compares_classes_as_mmcv_moves_them(
        mmcv_ops, config, width, class_agnostic):
    from mmturbox.ops.mmcv_ext.boxes import batched_nms
    stock = mmcv_ops.batched_nms
    ours = batched_nms(lambda *args: pytest.fail('left to stock'))
    boxes, scores = make_boxes(80, width)
    labels = torch.arange(80) % 3
    want = stock(boxes, scores, labels, config, class_agnostic)
    found = ours(boxes, scores, labels, config, class_agnostic)
    assert 5 < len(found[1]) < 75
    for a, b in zip(found, want, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize('config', [
    None, dict(type='soft_nms', iou_threshold=0.5),
    dict(type='nms', iou_threshold=0.5, unheard_of=1), dict(type='nms')])
def test_batched_nms_leaves_what_it_does_not_know_to_mmcv(config):
    from mmturbox.ops.mmcv_ext.boxes import batched_nms
    boxes, scores = make_boxes(5)
    found = batched_nms(lambda *args: args)(
        boxes, scores, torch.zeros(5), config, True)
    assert found == (boxes, scores, found[2], config, True)
