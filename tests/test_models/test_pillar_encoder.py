"""mmturbox.PillarFeatureNet against stock: output bits and gradients."""

import copy

import pytest
import torch

from mmturbox.analysis.counting import Counter
from mmturbox.testing.center_point import (
    center_point_config,
    import_mmdet3d,
    random_points,
)


@pytest.fixture(scope='module')
def base():
    import_mmdet3d()
    return center_point_config().model


@pytest.fixture(scope='module')
def voxels(base):
    from mmdet3d.registry import MODELS
    preprocessor = MODELS.build(base.data_preprocessor)
    return preprocessor.voxelize(
        [random_points(4000, 0), random_points(1500, 1)], None)


def pair(base, **options):
    from mmdet3d.registry import MODELS
    cfg = dict(copy.deepcopy(base.pts_voxel_encoder), **options)
    torch.manual_seed(0)
    stock = MODELS.build(cfg)
    turbo = MODELS.build(dict(cfg, type='mmturbox.PillarFeatureNet'))
    for parameter in stock.parameters():
        # A negative scale turns a maximum into a minimum.
        torch.nn.init.normal_(parameter)
    assert list(stock.state_dict()) == list(turbo.state_dict())
    turbo.load_state_dict(stock.state_dict())
    return stock, turbo


def run(net, voxels, dtype=torch.float32):
    # Legacy mode changes its input.
    features = voxels['voxels'].to(dtype).clone()
    net.zero_grad()
    out = net(features, voxels['num_points'], voxels['coors'])
    torch.manual_seed(0)
    out.backward(torch.randn(out.shape).to(dtype))
    return out.detach(), [p.grad.clone() for p in net.parameters()]


def gap(got, expected):
    return ((got - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize('options', [
    {},
    dict(with_distance=True),
    dict(with_cluster_center=False),
    dict(with_voxel_center=False),
], ids=str)
def test_training_output_is_stock_bit_for_bit(base, voxels, options):
    stock, turbo = pair(base, **options)
    for _ in range(3):
        expected, wanted_grads = run(stock, voxels)
        got, grads = run(turbo, voxels)
        assert torch.equal(got, expected)
        assert max(map(gap, grads, wanted_grads)) < 3e-6
        for ours, theirs in zip(
                turbo.buffers(), stock.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_gradients_in_double_are_exact(base, voxels):
    stock, turbo = pair(base)
    stock.double()
    turbo.double()
    _, wanted = run(stock, voxels, torch.float64)
    _, grads = run(turbo, voxels, torch.float64)
    assert max(map(gap, grads, wanted)) < 1e-11


def test_evaluation_and_frozen_norm_agree_with_stock(base, voxels):
    stock, turbo = pair(base)
    run(stock, voxels)
    turbo.load_state_dict(stock.state_dict())
    stock.eval()
    turbo.eval()
    expected, wanted_grads = run(stock, voxels)
    got, grads = run(turbo, voxels)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    assert max(map(gap, grads, wanted_grads)) < 3e-6
    assert turbo.pfn_layers[0].norm.num_batches_tracked == 1


@pytest.mark.parametrize('options', [
    dict(legacy=True),
    dict(mode='avg'),
    dict(feat_channels=[8, 16]),
    dict(norm_cfg=dict(type='GN', num_groups=2)),
], ids=str)
def test_what_the_twin_does_not_serve_is_stock(base, voxels, options):
    stock, turbo = pair(base, **options)
    expected, wanted_grads = run(stock, voxels)
    got, grads = run(turbo, voxels)
    assert torch.equal(got, expected)
    assert all(map(torch.equal, grads, wanted_grads))


def test_step_reads_nothing_and_launches_little(base, voxels):
    _, turbo = pair(base)
    run(turbo, voxels)
    features = voxels['voxels'].clone()
    with Counter() as counter:
        out = turbo(features, voxels['num_points'], voxels['coors'])
        out.sum().backward()
    assert counter.syncs == 0
    assert counter.launches <= 75


def test_no_pillars_are_stock(base):
    empty = torch.zeros(0).int()
    expected, got = (
        net.eval()(torch.zeros(0, 20, 5), empty, torch.zeros(0, 4).int())
        for net in pair(base))
    assert got.shape == expected.shape and got.dtype == expected.dtype


def test_training_after_inference_mode(base, voxels):
    stock, turbo = pair(base)
    for net in (stock, turbo):
        with torch.inference_mode():
            net(voxels['voxels'], voxels['num_points'], voxels['coors'])
    assert torch.equal(run(turbo, voxels)[0], run(stock, voxels)[0])
    for ours, theirs in zip(turbo.parameters(), stock.parameters(),
                            strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_hooks_are_called(base, voxels):
    stock, turbo = pair(base)
    calls = []
    for module in (turbo.pfn_layers[0], turbo.pfn_layers[0].norm):
        module.register_forward_hook(lambda *args: calls.append(args))
    assert torch.equal(run(turbo, voxels)[0], run(stock, voxels)[0])
    assert len(calls) == 2
