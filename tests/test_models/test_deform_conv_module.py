"""Twins of mmcv's deformable convolution layers."""

import pytest
import torch
from mmengine.registry import MODELS as ROOT

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402

mmcv_ext.install()
mmcv_ops = pytest.importorskip('mmcv.ops')

from mmturbox.models.layers.deform_conv import DCN, DCNv2  # noqa: E402

PAIRS = pytest.mark.parametrize('ours, stock', [
    (DCN, mmcv_ops.DeformConv2dPack),
    (DCNv2, mmcv_ops.ModulatedDeformConv2dPack),
])
SETTINGS = pytest.mark.parametrize('settings', [
    dict(kernel_size=3, padding=1),
    dict(kernel_size=(3, 2), stride=2, padding=(1, 0), dilation=(1, 2),
         groups=2, deform_groups=2),
])


def make_pair(ours, stock, settings):
    torch.manual_seed(0)
    twin = ours(4, 6, **settings)
    torch.manual_seed(0)
    layer = stock(4, 6, **settings)
    return twin, layer


@PAIRS
@SETTINGS
def test_initial_parameters_are_those_of_stock(ours, stock, settings):
    twin, layer = make_pair(ours, stock, settings)
    assert list(twin.state_dict()) == list(layer.state_dict())
    for a, b in zip(twin.parameters(), layer.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not twin.conv_offset.weight.any()


@PAIRS
@SETTINGS
def test_outputs_and_gradients_are_those_of_stock(ours, stock, settings):
    twin, layer = make_pair(ours, stock, settings)
    torch.nn.init.normal_(layer.conv_offset.weight)
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(3, 4, 7, 9)
    weight = None
    results = []
    for module in (twin, layer):
        leaf = x.clone().requires_grad_()
        out = module(leaf)
        weight = torch.randn_like(out) if weight is None else weight
        out.backward(weight)
        results.append((out, leaf.grad,
                        *(p.grad for p in module.parameters())))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize('step', [1, 64, 128])
def test_any_batch_works_for_any_step(step):
    """KF-A10: mmcv's layer asks for a batch that the step divides."""
    x = torch.randn(80, 2, 4, 4)
    torch.manual_seed(0)
    twin = DCN(2, 3, 3, padding=1, im2col_step=step)
    torch.nn.init.normal_(twin.conv_offset.weight)
    out = twin(x)
    alone = torch.cat([twin(x[b:b + 1]) for b in range(80)])
    torch.testing.assert_close(out, alone)
    if step == 64:
        with pytest.raises(AssertionError, match='im2col_step'):
            mmcv_ops.DeformConv2dPack.forward(twin, x)


@PAIRS
def test_weights_load_both_ways(ours, stock):
    twin, layer = make_pair(ours, stock, dict(kernel_size=3))
    layer.conv_offset.bias.data.fill_(0.5)
    twin.load_state_dict(layer.state_dict())
    assert bool((twin.conv_offset.bias == 0.5).all())
    layer.load_state_dict(twin.state_dict())


@PAIRS
@pytest.mark.parametrize('version', [None, 1, 2])
def test_old_keys_are_upgraded_as_by_stock(ours, stock, version):
    """Before version 2 <layer>_offset stood beside <layer>."""
    twin, layer = make_pair(ours, stock, dict(kernel_size=3))
    old = {
        f'conv2.{key}'.replace('conv2.conv_offset', 'conv2_offset'): value + 1
        for key, value in layer.state_dict().items()
    }
    results = []
    for module in (twin, layer):
        found, missing, unexpected, errors = dict(old), [], [], []
        module._load_from_state_dict(
            found, 'conv2.', {} if version is None else
            dict(version=version), True, missing, unexpected, errors)
        results.append((list(found), missing, unexpected, errors))
        assert ('conv2.conv_offset.bias' in found) == (version != 2)
        assert torch.equal(module.weight, old['conv2.weight'])
    assert results[0] == results[1]


@pytest.mark.parametrize('name, kind', [('mmturbox.DCN', DCN),
                                        ('mmturbox.DCNv2', DCNv2)])
def test_configs_name_them_as_convolution_layers(name, kind):
    from mmcv.cnn import ConvModule, build_conv_layer
    layer = build_conv_layer(
        dict(type=name, deform_groups=2), 4, 6, 3, padding=1, bias=False)
    assert type(layer) is kind and layer.deform_groups == 2
    block = ConvModule(4, 6, 3, padding=1, bias=False,
                       conv_cfg=dict(type=name))
    assert type(block.conv) is kind
    assert block(torch.randn(1, 4, 5, 5)).shape == (1, 6, 5, 5)
    assert ROOT.get(name) is kind
