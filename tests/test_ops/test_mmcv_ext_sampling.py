"""mmcv's functions for points, over our operators."""

import numpy as np
import pytest
import torch

from mmturbox import ops
from mmturbox.ops import mmcv_ext


@pytest.fixture(name='ext')
def our_ext():
    mmcv_ext.install()
    module = pytest.importorskip('mmcv._ext')
    if not getattr(module, 'is_mmturbox', False):
        pytest.skip('mmcv has its own _ext')
    return module


@pytest.fixture(name='mmcv_ops')
def ops_of_mmcv(ext):
    return pytest.importorskip('mmcv.ops')


def make_clouds(points=60, centers=20):
    generator = torch.Generator().manual_seed(points)
    return (torch.rand(2, points, 3, generator=generator),
            torch.rand(2, centers, 3, generator=generator))


def test_furthest_points_fill_the_tensor_that_mmcv_hands_over(ext):
    points, _ = make_clouds()
    out, room = torch.zeros(2, 7, dtype=torch.int32), torch.zeros(2, 60)
    assert ext.furthest_point_sampling_forward(
        points, room, out, b=2, n=60, m=7) is None
    assert torch.equal(out, ops.furthest_point_sample(points, 7))
    distances = torch.cdist(points, points)
    ext.furthest_point_sampling_with_dist_forward(
        distances, room, out, b=2, n=60, m=7)
    assert torch.equal(out,
                       ops.furthest_point_sample_with_dist(distances, 7))


def test_ball_query_dense_and_stacked(mmcv_ops):
    points, centers = make_clouds()
    assert torch.equal(
        mmcv_ops.ball_query(0.1, 0.4, 5, points, centers),
        ops.ball_query(0.1, 0.4, 5, points, centers))
    arguments = (points.flatten(0, 1), centers.flatten(0, 1),
                 torch.tensor([60, 60]).int(), torch.tensor([20, 20]).int())
    found = mmcv_ops.ball_query(0, 0.1, 5, *arguments)
    assert torch.equal(found, ops.ball_query(0, 0.1, 5, *arguments))
    assert (found[:, 0] == -1).any()


def test_nearest_points(ext, mmcv_ops):
    points, centers = make_clouds()
    index = torch.zeros(2, 20, 4, dtype=torch.int32)
    squared = torch.zeros(2, 20, 4)
    ext.knn_forward(points, centers, index, squared, b=2, n=60, m=20,
                    nsample=4)
    assert torch.equal(index.transpose(1, 2), ops.knn(4, points, centers))
    torch.testing.assert_close(
        squared, torch.cdist(centers, points).square().sort(2)[0][..., :4])
    for found, want in zip(
            mmcv_ops.three_nn(centers, points),
            ops.three_nn(centers, points), strict=True):
        assert torch.equal(found, want)


def assert_same_with_gradient(stock, ours, features):
    """Results and gradients of two functions of ``features``."""
    results = []
    for function in (stock, ours):
        leaf = features.clone().requires_grad_()
        out = function(leaf)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaf)))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize('dtype', [
    torch.float16, torch.float32, torch.float64])
def test_gathering_grouping_and_interpolation(mmcv_ops, dtype):
    features = torch.randn(2, 4, 60).to(dtype)
    index = torch.randint(60, (2, 9, 3)).int()
    weight = torch.rand(2, 9, 3).to(dtype)
    assert_same_with_gradient(
        lambda x: mmcv_ops.gather_points(x, index[..., 0].contiguous()),
        lambda x: ops.gather_points(x, index[..., 0]), features)
    assert_same_with_gradient(
        lambda x: mmcv_ops.grouping_operation(x, index),
        lambda x: ops.group_points(x, index), features)
    assert_same_with_gradient(
        lambda x: mmcv_ops.three_interpolate(x, index, weight),
        lambda x: ops.three_interpolate(x, index, weight), features)
    counts = (torch.tensor([30, 30]).int(), torch.tensor([4, 5]).int())
    index = index[0] % 30
    assert_same_with_gradient(
        lambda x: mmcv_ops.grouping_operation(x, index, *counts),
        lambda x: ops.group_points(x, index, *counts),
        torch.randn(60, 4).to(dtype))


@pytest.mark.parametrize('mode', ['max', 'avg'])
@pytest.mark.parametrize('room', [1, 3, 128])
def test_roiaware_pooling(mmcv_ops, mode, room):
    points = torch.rand(300, 3) * 6 - 3
    rois = torch.tensor([[0., 0, -1, 4, 3, 2, 0.3], [1, 1, -3, 2, 2, 6, 2],
                         [50, 0, 0, 1, 1, 1, 0]])
    layer = mmcv_ops.RoIAwarePool3d((3, 2, 4), room, mode)
    assert_same_with_gradient(
        lambda x: layer(rois, points, x),
        lambda x: ops.roiaware_pool3d(rois, points, x, (3, 2, 4), room, mode),
        torch.randn(300, 5))


def test_roiaware_lists_are_counted_in_their_first_place(ext):
    points = torch.tensor([[0.1, 0, 0], [5, 5, 5], [0.2, 0, 0], [0.3, 0, 0]])
    rois = torch.tensor([[0., 0, -1, 2, 2, 2, 0]])
    lists = torch.zeros(1, 1, 1, 1, 3, dtype=torch.int32)
    argmax = torch.zeros(1, 1, 1, 1, 1, dtype=torch.int32)
    pooled = torch.zeros(1, 1, 1, 1, 1)
    ext.roiaware_pool3d_forward(rois, points, points[:, :1].contiguous(),
                                argmax, lists, pooled, pool_method=0)
    assert lists.flatten().tolist() == [2, 0, 2]
    assert argmax.item() == 2 and pooled.item() == points[2, 0]


def test_published_sums_of_roiaware_pooling(mmcv_ops):
    """The figures of mmcv's own tests."""
    rois = torch.tensor([[1., 2, 3, 5, 4, 6, -0.3 - np.pi / 2],
                         [-10, 23, 16, 20, 10, 20, -0.5 - np.pi / 2]])
    points = torch.tensor([
        [1, 2, 3.3], [1.2, 2.5, 3], [0.8, 2.1, 3.5], [1.6, 2.6, 3.6],
        [0.8, 1.2, 3.9], [-9.2, 21, 18.2], [3.8, 7.9, 6.3],
        [4.7, 3.5, -12.2], [3.8, 7.6, -2], [-10.6, -12.9, -20], [-16, -18, 9],
        [-21.3, -52, -5], [0, 0, 0], [6, 7, 8], [-2, -3, -4]])
    for mode, want in (('max', 51.1), ('avg', 49.75)):
        layer = mmcv_ops.RoIAwarePool3d(4, mode=mode)
        torch.testing.assert_close(
            layer(rois, points, points).sum(), torch.tensor(want), rtol=1e-3,
            atol=0)


def test_roipoint_pooling(mmcv_ops):
    points, features = torch.rand(2, 80, 3) * 4, torch.randn(2, 80, 5)
    boxes = torch.tensor([[[2., 2, 0, 2, 2, 4, 0.3], [9, 9, 9, 1, 1, 1, 0]]])
    boxes = boxes.repeat(2, 1, 1)
    found = mmcv_ops.RoIPointPool3d(30)(points, features, boxes)
    want = ops.roipoint_pool3d(points, features, boxes, 30)
    assert torch.equal(found[0], want[0]) and torch.equal(found[1], want[1])
    assert found[1].tolist() == [[0, 1]] * 2


def test_assigned_scores(mmcv_ops):
    points, centers = torch.randn(2, 2, 7, 3, 4, dtype=torch.float64)
    scores = torch.randn(2, 5, 6, 3, dtype=torch.float64)
    index = torch.randint(7, (2, 5, 6))
    index[0, 1, 2] = 7
    leaves = [x.requires_grad_() for x in (scores, points, centers)]
    out = mmcv_ops.assign_score_withk(*leaves, index, 'sum')
    assert out.shape == (2, 4, 5, 6) and not out[0, :, 1, 2].any()
    delta = points[1, index[1, 2, 3]] - centers[1, index[1, 2, 0]]
    want = (scores[1, 2, 3][:, None] * delta).sum(0)
    torch.testing.assert_close(out[1, :, 2, 3], want)
    torch.autograd.gradcheck(
        lambda *x: mmcv_ops.assign_score_withk(*x, index, 'sum'), leaves)


def test_chamfer_distance(mmcv_ops):
    one, two = (torch.randn(2, n, 2, requires_grad=True) for n in (30, 40))
    found = mmcv_ops.chamfer_distance(one, two)
    d2 = (one[:, :, None] - two[:, None]).square().sum(3)
    want = (*d2.min(2), *d2.min(1))
    for place, which in ((0, 0), (1, 2), (2, 1), (3, 3)):
        torch.testing.assert_close(
            found[place], want[which].to(found[place].dtype))
    grads = [
        torch.autograd.grad(a.square().sum() + b.sum(), (one, two))
        for a, b in (found[:2], want[::2])
    ]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)
