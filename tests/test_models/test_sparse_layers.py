"""Sparse layers against dense convolution, and their use of rulebooks."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmturbox.models import sparse
from mmturbox.models.sparse import (
    SparseConv2d,
    SparseConv3d,
    SparseConvTensor,
    SparseConvTranspose3d,
    SparseInverseConv3d,
    SparseMaxPool3d,
    SparseSequential,
    SubMConv2d,
    SubMConv3d,
    ToDense,
    geometry,
)
from mmturbox.registry import MODELS

SHAPE = [7, 9, 8]


def make_tensor(channels=4, rows=90, batch=2, shape=SHAPE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    cells = batch * math.prod(shape)
    places = torch.randperm(cells, generator=generator)[:rows]
    columns = []
    for size in reversed(shape):
        columns.append(places % size)
        places = places // size
    indices = torch.stack([places, *reversed(columns)], 1).int()
    features = torch.randn(rows, channels, generator=generator)
    return SparseConvTensor(features.requires_grad_(), indices, shape, batch)


def occupied(x):
    return x.replace_feature(torch.ones(len(x.indices), 1)).dense()


def assert_as_dense(x, layer, dense):
    """``layer`` equals the dense convolution at its rows, gradients too."""
    out = layer(x)
    expected = dense(x.dense()) * occupied(out)
    torch.testing.assert_close(out.dense(), expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape)
    inputs = [x.features, *layer.parameters()]
    found = torch.autograd.grad((out.dense() * weights).sum(), inputs)
    wanted = torch.autograd.grad((expected * weights).sum(), inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    return out


def dense_weight(layer):
    return layer.weight.movedim((-1, -2), (0, 1))


def test_submanifold_layers_equal_dense_convolution_at_their_rows():
    torch.manual_seed(0)
    for kind, shape, dense in ((SubMConv3d, SHAPE, F.conv3d),
                               (SubMConv2d, [9, 8], F.conv2d)):
        layer = kind(4, 6, 3, padding=1)
        assert_as_dense(
            make_tensor(shape=shape), layer,
            lambda x, layer=layer, dense=dense: dense(
                x, dense_weight(layer), layer.bias, padding=1))


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('stride, padding', [
    (2, 1), ((2, 1, 1), (0, 1, 1)), (1, 0), (3, 2)])
def test_strided_layers_equal_dense_convolution(stride, padding, bias):
    torch.manual_seed(0)
    layer = SparseConv3d(4, 5, 3, stride, padding, bias=bias)
    out = assert_as_dense(
        make_tensor(), layer, lambda x: F.conv3d(
            x, dense_weight(layer), layer.bias, stride, padding))
    assert out.spatial_shape == list(out.dense().shape[2:])


def test_transposed_and_two_dimensional_layers_equal_dense_ones():
    torch.manual_seed(0)
    layer = SparseConvTranspose3d(4, 5, 3, 2, 1)
    assert_as_dense(
        make_tensor(rows=40), layer, lambda x: F.conv_transpose3d(
            x, layer.weight.movedim((-2, -1), (0, 1)), layer.bias, 2, 1))
    flat = SparseConv2d(4, 5, 3, 2, 1)
    assert_as_dense(
        make_tensor(shape=[9, 8]), flat, lambda x: F.conv2d(
            x, dense_weight(flat), flat.bias, 2, 1))


def test_an_inverse_layer_gives_the_rows_and_shape_of_its_couple():
    torch.manual_seed(0)
    x = make_tensor()
    down = SparseConv3d(4, 5, 3, 2, 1, indice_key='down', bias=False)
    up = SparseInverseConv3d(5, 6, 3, 'down', bias=False)
    out = up(down(x))
    assert torch.equal(out.indices, x.indices)
    assert out.spatial_shape == x.spatial_shape
    # Each pair of rows meets by the same tap on the way back.
    dense = F.conv_transpose3d(
        down(x).dense(), up.weight.movedim((-2, -1), (0, 1)), stride=2,
        padding=1, output_padding=(0, 0, 1)) * occupied(x)
    torch.testing.assert_close(out.dense(), dense, atol=1e-5, rtol=1e-5)


def test_an_inverse_layer_without_its_couple_says_so():
    layer = SparseInverseConv3d(4, 4, 3, 'missing')
    with pytest.raises(ValueError, match="indice_key='missing'"):
        layer(make_tensor())


def test_an_empty_output_shape_names_the_layer():
    """KF-A14."""
    x = SparseConvTensor(
        torch.ones(1, 4), torch.zeros(1, 4, dtype=torch.int32),
        [2, 188, 188], 1)
    layer = SparseConv3d(4, 4, (3, 1, 1), (2, 1, 1), 0)
    with pytest.raises(ValueError) as error:
        layer(x)
    text = str(error.value)
    for part in ('SparseConv3d', '(2, 188, 188)', '(3, 1, 1)', '(2, 1, 1)',
                 '(0, 0, 0)'):
        assert part in text, text


def test_far_apart_rows_of_a_huge_grid_do_not_alias():
    """KF-A13."""
    torch.manual_seed(0)
    layers = SparseSequential(
        SubMConv3d(3, 4, 3, padding=1), SparseConv3d(4, 5, 3, 2, 1))
    near = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 2], [3, 1, 2, 2]]).int()
    move = torch.tensor([0, 38, 39990, 39990]).int()
    features = torch.randn(3, 3)
    small = layers(SparseConvTensor(features, near, [6, 6, 6], 4))
    huge = layers(
        SparseConvTensor(features, near + move, [41, 40000, 40000], 4))
    assert torch.equal(small.features, huge.features)
    moved = small.indices + torch.tensor([0, 19, 19995, 19995]).int()
    assert torch.equal(moved, huge.indices)


def test_no_rows_at_all_pass_through():
    layers = SparseSequential(
        SubMConv3d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(),
        SparseConv3d(6, 8, 3, 2, 1), SparseMaxPool3d(2, 2), ToDense())
    x = make_tensor(rows=0)
    out = layers(x)
    assert out.shape[:2] == (2, 8) and not out.any()
    out.sum().backward()


def test_pooling_takes_the_maximum_of_the_rows_in_the_window():
    x = make_tensor()
    out = SparseMaxPool3d(2, 2)(x)
    lowest = torch.full_like(x.dense(), -math.inf)
    filled = torch.where(occupied(x) > 0, x.dense(), lowest)
    expected = F.max_pool3d(filled, 2, 2)
    expected = torch.where(expected == -math.inf, 0, expected)
    assert torch.equal(out.dense(), expected)


@pytest.mark.parametrize('training', [True, False])
def test_a_sequence_fuses_norm_and_relu_with_equal_results(training):
    torch.manual_seed(0)
    parts = [SubMConv3d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU()]
    nn.init.normal_(parts[1].weight)
    nn.init.normal_(parts[1].running_mean)
    x = make_tensor()
    fused = SparseSequential(*parts).train(training)
    hooks = [part.register_forward_hook(lambda *_: None) for part in parts]
    with torch.no_grad():
        plain = fused(x)
        for hook in hooks:
            hook.remove()
        out = fused(x)
    torch.testing.assert_close(out.features, plain.features)
    assert out.features.min() == 0


def test_the_second_pass_finds_all_rulebooks_together(monkeypatch):
    calls = []
    stock = geometry.sparse_rulebooks

    def counted(coords, batch_size, shape, specs, unique):
        calls.append(len(specs))
        return stock(coords, batch_size, shape, specs, unique)

    monkeypatch.setattr(geometry, 'sparse_rulebooks', counted)
    layers = SparseSequential(
        SubMConv3d(4, 4, 3), SubMConv3d(4, 4, 3),
        SparseConv3d(4, 4, 3, 2, 1), SubMConv3d(4, 4, 3),
        SparseConv3d(4, 4, 3, 2, 1), SubMConv3d(4, 4, 3))
    first = layers(make_tensor())
    assert calls == [1] * 5
    calls.clear()
    assert torch.equal(layers(make_tensor()).features, first.features)
    assert calls == [5]
    calls.clear()
    other = layers(make_tensor(shape=[4, 4, 4], rows=20))
    assert calls == [5] and other.spatial_shape == [1, 1, 1]


@pytest.mark.parametrize('kind', [SubMConv3d, SparseConv2d])
def test_weights_of_both_libraries_load(kind):
    torch.manual_seed(0)
    ours = kind(4, 6, 3)
    other = kind(4, 6, 3)
    state = {key: value.clone() for key, value in ours.state_dict().items()}
    spconv = dict(state, weight=state['weight'].movedim(-1, 0))
    for weights in (state, spconv):
        nn.init.zeros_(other.weight)
        other.load_state_dict(weights)
        assert torch.equal(other.weight, ours.weight)
    as_spconv = sparse.SparseConvolution(
        ours.ndim, 4, 6, 3, subm=ours.subm, spconv_layout=True)
    as_spconv.load_state_dict(state)
    assert as_spconv.weight.shape == spconv['weight'].shape
    assert torch.equal(as_spconv.taps(), ours.taps())


def test_a_wrong_setting_is_named():
    with pytest.raises(ValueError, match='groups'):
        SubMConv3d(4, 4, 3, groups=2)
    with pytest.raises(ValueError, match='stride and dilation'):
        SparseConv3d(4, 4, 3, stride=2, dilation=2)
    with pytest.raises(ValueError, match='odd kernel'):
        SubMConv3d(4, 4, 2)
    with pytest.raises(TypeError, match='SparseConvTensor, got Tensor'):
        SubMConv3d(4, 4, 3)(torch.zeros(3, 4))


def test_layers_are_built_by_name():
    for name in ('SubMConv2d', 'SubMConv3d', 'SparseConv2d', 'SparseConv3d',
                 'SparseConvTranspose2d', 'SparseConvTranspose3d'):
        layer = MODELS.build(
            dict(type=f'mmturbox.{name}', in_channels=4, out_channels=6,
                 kernel_size=3, indice_key='a'))
        assert layer.weight.shape[-2:] == (4, 6)
