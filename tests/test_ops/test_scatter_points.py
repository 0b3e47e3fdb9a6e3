"""Reducing point features over voxels."""

import pytest
import torch

from mmturbox.ops import dynamic_scatter, voxel_groups, voxel_reduce
from mmturbox.ops.scatter_points import (
    dynamic_scatter_backward,
    voxel_reduce_backward_reference,
    voxel_reduce_reference,
)

MODES = ['sum', 'mean', 'max']
NUMBER = dict(sum=0, mean=1, max=2)
OPS = torch.ops.mmturbox


def make_input(number=400, channels=3, dtype=torch.float32, seed=0,
               extent=5):
    """Features, and coordinates of which some rows are invalid."""
    generator = torch.Generator().manual_seed(seed)
    feats = torch.randn(number, channels, generator=generator).to(dtype)
    coors = torch.randint(-1, extent, (number, 3), generator=generator)
    return feats, coors.int()


def plain_scatter(feats, coors, mode):
    """Independent of the package: a dict of rows, numpy-free."""
    groups = {}
    for i, row in enumerate(coors.tolist()):
        if min(row) >= 0:
            groups.setdefault(tuple(row), []).append(i)
    keys = sorted(groups)
    reduce = dict(
        sum=lambda x: x.sum(0), mean=lambda x: x.mean(0),
        max=lambda x: x.max(0)[0])[mode]
    out = torch.stack([reduce(feats[groups[k]]) for k in keys])
    mapping = torch.full((len(feats), ), -1)
    for n, key in enumerate(keys):
        mapping[groups[key]] = n
    return out, keys, mapping, [len(groups[k]) for k in keys]


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('index', [torch.int32, torch.int64])
def test_scatter_matches_plain_python(mode, index, device):
    feats, coors = make_input()
    out, keys, mapping, count = dynamic_scatter(
        feats.to(device), coors.to(device, index), mode)
    expected = plain_scatter(feats, coors, mode)
    torch.testing.assert_close(out.cpu(), expected[0])
    assert keys.dtype == index and keys.tolist() == list(
        map(list, expected[1]))
    assert mapping.dtype == count.dtype == torch.int32
    assert mapping.tolist() == expected[2].tolist()
    assert count.tolist() == expected[3]


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('extent', [4, 3000])
@pytest.mark.parametrize('channels', [1, 5, 36])
def test_kernels_equal_the_reference(mode, dtype, extent, channels, device):
    feats, coors = make_input(700, channels, dtype, extent=extent)
    coors[1] = coors[0]
    groups = voxel_groups(coors)
    arguments = (feats, *groups[1:], NUMBER[mode])
    given = [a.to(device) for a in arguments[:-1]]
    out = OPS.voxel_reduce(*given, NUMBER[mode])
    expected = voxel_reduce_reference(*arguments)
    torch.testing.assert_close(out.cpu(), expected)
    grad = torch.randn_like(expected)
    expected = voxel_reduce_backward_reference(grad, feats, expected,
                                               *groups[1:], NUMBER[mode])
    found = OPS.voxel_reduce_backward(
        grad.to(device), given[0], out, *given[1:], NUMBER[mode])
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize('mode', MODES)
def test_backward_from_the_map_alone_equals_autograd(mode, device):
    feats, coors = (a.to(device) for a in make_input(300, extent=3))
    feats.requires_grad_()
    out, _, mapping, count = dynamic_scatter(feats, coors, mode)
    grad = torch.randn_like(out)
    found = dynamic_scatter_backward(grad, feats.detach(), out.detach(),
                                     mapping, count, mode)
    assert torch.equal(found, torch.autograd.grad(out, feats, grad)[0])


def test_one_search_serves_several_reductions(device):
    feats, coors = (a.to(device) for a in make_input())
    groups = voxel_groups(coors)
    for mode in MODES:
        assert torch.equal(
            voxel_reduce(feats, groups, mode),
            dynamic_scatter(feats, coors, mode)[0])


def test_a_crowded_voxel_is_summed_in_point_order(device):
    feats = torch.randn(2000, 2)
    total = torch.zeros(2)
    for row in feats:
        total += row
    coors = torch.zeros(2000, 3, dtype=torch.int32, device=device)
    out = dynamic_scatter(feats.to(device), coors, 'sum')[0]
    assert torch.equal(out[0].cpu(), total)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_no_worse_than_rounding_the_float32_result(
        mode, dtype, device):
    feats, coors = (a.to(device)
                    for a in make_input(2000, dtype=dtype, extent=3))
    out = dynamic_scatter(feats, coors, mode)[0]
    exact = dynamic_scatter(feats.float(), coors, mode)[0]
    assert out.dtype == dtype
    assert torch.equal(out, exact.to(dtype))


@pytest.mark.parametrize('mode', MODES)
def test_gradients_are_right(mode, device):
    feats, coors = (a.to(device)
                    for a in make_input(14, 2, torch.float64, extent=2))
    assert torch.autograd.gradcheck(
        lambda x: dynamic_scatter(x, coors, mode)[0], feats.requires_grad_())


def test_a_tied_maximum_gives_its_gradient_to_the_first_point(device):
    feats = torch.tensor([[1.], [2.], [2.], [2.]], device=device,
                         requires_grad=True)
    coors = torch.zeros(4, 3, dtype=torch.int32, device=device)
    dynamic_scatter(feats, coors, 'max')[0].sum().backward()
    assert feats.grad.flatten().tolist() == [0, 1, 0, 0]


def test_a_nan_feature_shows_in_its_voxel_only(device):
    feats = torch.tensor([[1.], [torch.nan], [3.], [4.]], device=device,
                         requires_grad=True)
    coors = torch.tensor([[0, 0, 0]] * 3 + [[1, 0, 0]], device=device)
    out = dynamic_scatter(feats, coors, 'max')[0]
    assert out.isnan().flatten().tolist() == [True, False]
    out[1].sum().backward()
    assert feats.grad.flatten().tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('name', ['none', 'slice', 'all left out'])
def test_no_points_give_empty_results_and_gradients(mode, name, device):
    """KF-A1."""
    feats = dict(none=torch.zeros(0, 4), slice=torch.rand(9, 4)[2:2]).get(
        name, torch.rand(100, 4)).to(device).requires_grad_()
    coors = torch.full((len(feats), 3), -1, dtype=torch.int32, device=device)
    out, out_coors, mapping, count = dynamic_scatter(feats, coors, mode)
    assert out.shape == (0, 4) and out.dtype == feats.dtype
    assert out_coors.shape == (0, 3) and out_coors.dtype == torch.int32
    assert mapping.shape == (len(feats), ) and count.shape == (0, )
    out.sum().backward()
    assert feats.grad.shape == feats.shape
    assert not feats.grad.any()


@pytest.mark.parametrize('mode', MODES)
def test_edges_of_shape_and_memory(mode, device):
    feats, coors = (a.to(device) for a in make_input(200, 6))
    views = (feats[::2, ::3], coors.t().contiguous().t()[::2])
    assert not views[0].is_contiguous() and not views[1].is_contiguous()
    for a, b in zip(
            dynamic_scatter(*views, mode),
            dynamic_scatter(*(v.contiguous() for v in views), mode),
            strict=True):
        assert torch.equal(a, b)
    one = dynamic_scatter(feats[:1], coors[:1].abs(), mode)
    assert torch.equal(one[0], feats[:1])
    four = torch.cat((coors[:, :1], coors), 1)
    assert dynamic_scatter(feats, four, mode)[1].shape[1] == 4
    assert dynamic_scatter(feats[:, :0], coors, mode)[0].shape[1] == 0


@pytest.mark.parametrize('mode', MODES)
def test_results_do_not_depend_on_run_or_threads(mode):
    feats, coors = make_input(5000, 8)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            x = feats.clone().requires_grad_()
            out = dynamic_scatter(x, coors, mode)[0]
            out.square().sum().backward()
            results.append((out, x.grad))
    finally:
        torch.set_num_threads(before)
    for out, grad in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(grad, results[0][1])


@pytest.mark.parametrize('mode', MODES)
def test_operators_pass_opcheck(mode):
    feats, coors = make_input(20, extent=2)
    groups = voxel_groups(coors)
    torch.library.opcheck(
        OPS.voxel_reduce.default,
        (feats.requires_grad_(), *groups[1:], NUMBER[mode]))
    with torch.no_grad():
        out = voxel_reduce(feats, groups, mode)
    torch.library.opcheck(
        OPS.voxel_reduce_backward.default,
        (out, feats.detach(), out, *groups[1:], NUMBER[mode]))


@pytest.mark.parametrize('change, message', [
    (dict(reduce='min'), 'reduce'),
    (dict(coors=torch.zeros(3, 3).int()), 'shape'),
    (dict(coors=torch.zeros(4, 3)), 'int32'),
])
def test_bad_arguments_are_named(change, message):
    arguments = dict(
        feats=torch.rand(4, 2), coors=torch.zeros(4, 3).int(), reduce='max')
    with pytest.raises(ValueError, match=message):
        dynamic_scatter(**(arguments | change))


@pytest.mark.parametrize('mode', ['mean', 'max'])
def test_mmcv_and_mmdet3d_layers_run_over_it(mode):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    feats, coors = make_input(300)
    layer = mmcv_ops.DynamicScatter([1] * 3, [0] * 6, mode == 'mean')
    x, y = feats.clone().requires_grad_(), feats.clone().requires_grad_()
    out, keys = layer(x, coors)
    expected = dynamic_scatter(y, coors, mode)
    assert torch.equal(out, expected[0]) and torch.equal(keys, expected[1])
    out.square().sum().backward()
    expected[0].square().sum().backward()
    assert torch.equal(x.grad, y.grad)
    empty = torch.zeros(0, 3, requires_grad=True)
    layer(empty, torch.zeros(0, 3).int())[0].sum().backward()
    assert empty.grad.shape == (0, 3)


# KF-A1: mmcv's own layer reads the batch index of the last point.
@pytest.mark.parametrize('columns', [3, 4])
def test_mmcvs_layer_takes_zero_points(columns):
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    feats = torch.zeros(0, 5, requires_grad=True)
    layer = mmcv_ops.DynamicScatter([1] * 3, [0] * 6, True)
    out, coors = layer(feats, torch.zeros(0, columns, dtype=torch.int32))
    out.sum().backward()
    assert out.shape == (0, 5) and coors.shape == (0, columns)
    assert feats.grad.shape == (0, 5)
