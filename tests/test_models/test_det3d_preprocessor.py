"""Voxels of a batch and their scatter against stock, bit for bit."""

import copy

import pytest
import torch

from mmturbox.analysis.counting import Counter
from mmturbox.testing.center_point import (
    center_point_config,
    import_mmdet3d,
    random_batch,
    random_points,
)


@pytest.fixture(scope='module')
def build():
    import_mmdet3d()
    from mmdet3d.registry import MODELS
    base = center_point_config().model

    def build(part, scope='', **options):
        cfg = copy.deepcopy(base[part])
        cfg.update(options)
        cfg.type = scope + cfg.type
        return MODELS.build(cfg)

    return build


def clouds(counts=(3000, 900), seed=0):
    return [random_points(count, seed + i) for i, count in enumerate(counts)]


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert got[name].dtype == value.dtype, name
        assert torch.equal(got[name], value), name


@pytest.mark.parametrize('counts', [(3000, 900), (500, 0), (0, 0), (5000, )])
@pytest.mark.parametrize('training', [True, False])
def test_hard_voxels_equal_stock(build, counts, training):
    # KF-A1: a sample without points among them.
    stock = build('data_preprocessor').train(training)
    turbo = build('data_preprocessor', 'mmturbox.').train(training)
    for seed in range(3):
        points = clouds(counts, seed)
        assert_same(
            turbo.voxelize(points, None), stock.voxelize(points, None))


def test_dynamic_voxels_equal_stock(build):
    layer = dict(
        max_num_points=-1,
        max_voxels=(-1, -1),
        voxel_size=[.4, .4, 1.],
        point_cloud_range=[-40., -40., -3., 40., 40., 3.])
    options = dict(voxel_type='dynamic', voxel_layer=layer)
    stock = build('data_preprocessor', **copy.deepcopy(options))
    turbo = build('data_preprocessor', 'mmturbox.', **options)
    for counts in ((3000, 900), (500, 0)):
        points = clouds(counts)
        assert_same(
            turbo.voxelize(points, None), stock.voxelize(points, None))


def test_a_whole_batch_equals_stock(build):
    stock = build('data_preprocessor')
    turbo = build('data_preprocessor', 'mmturbox.')
    batch = random_batch(2, 10, 2000, seed=1)
    expected = stock(copy.deepcopy(batch), training=True)
    got = turbo(copy.deepcopy(batch), training=True)
    assert_same(got['inputs']['voxels'], expected['inputs']['voxels'])
    for ours, theirs in zip(
            got['inputs']['points'], expected['inputs']['points'],
            strict=True):
        assert torch.equal(ours, theirs)


def test_voxels_and_scatter_read_once(build):
    preprocessor = build('data_preprocessor', 'mmturbox.')
    scatter = build('pts_middle_encoder', 'mmturbox.')
    points = clouds()
    preprocessor.voxelize(points, None)
    with Counter() as counter:
        voxels = preprocessor.voxelize(points, None)
        feats = voxels['voxels'].new_ones(len(voxels['coors']), 16)
        scatter(feats, voxels['coors'], voxels['coors'][-1, 0] + 1)
    assert counter.syncs <= 1
    assert counter.launches <= 20


def test_scatter_and_its_gradient_equal_stock(build):
    coors = build('data_preprocessor').voxelize(clouds(), None)['coors']
    outs, grads = [], []
    for scope in ('', 'mmturbox.'):
        torch.manual_seed(0)
        feats = torch.randn(len(coors), 16, requires_grad=True)
        scatter = build('pts_middle_encoder', scope)
        out = scatter(feats, coors, coors[-1, 0] + 1)
        out.backward(torch.randn_like(out))
        outs.append(out)
        grads.append(feats.grad)
    assert torch.equal(*outs) and torch.equal(*grads)
    assert outs[1].is_contiguous()


def test_scatter_of_a_single_sample_is_stock(build):
    coors = build('data_preprocessor').voxelize(clouds((800, )), None)['coors']
    feats = torch.randn(len(coors), 16)
    assert torch.equal(
        build('pts_middle_encoder', 'mmturbox.')(feats, coors),
        build('pts_middle_encoder')(feats, coors))


def test_a_last_sample_without_voxels_keeps_its_place(build):
    voxels = build('data_preprocessor', 'mmturbox.').voxelize(
        clouds((400, 0)), None)
    feats = torch.ones(len(voxels['coors']), 16)
    out = build('pts_middle_encoder', 'mmturbox.')(
        feats, voxels['coors'], voxels['coors'][-1, 0] + 1)
    assert len(out) == 2 and not out[1].any()
