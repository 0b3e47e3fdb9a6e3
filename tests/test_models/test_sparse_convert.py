"""Stock sparse encoders with their layers replaced: the same training."""

import copy

import pytest
import torch

from mmturbox.ops import mmcv_ext

mmcv_ext.install()
pytest.importorskip('mmdet3d.models')

from mmdet3d.registry import MODELS  # noqa: E402
from mmengine.config import Config  # noqa: E402

from mmturbox.models.sparse import (  # noqa: E402
    SparseConvolution,
    SparseConvTensor,
    convert_sparse,
)
from mmturbox.passes.driver import make_plan  # noqa: E402

NORM = dict(type='BN1d', eps=1e-3, momentum=.01)
ENCODER = dict(
    type='mmdet3d.SparseEncoder', in_channels=5, sparse_shape=[17, 24, 24],
    order=('conv', 'norm', 'act'), norm_cfg=NORM, base_channels=8,
    output_channels=16, encoder_channels=((8, 8), (8, 16)),
    encoder_paddings=((0, 1), (0, 0)))
BLOCKS = dict(
    ENCODER, block_type='basicblock', encoder_channels=((8, 8, 16), (16, 16)),
    encoder_paddings=((0, 0, 1), (0, 0)))
UNET = dict(
    type='mmdet3d.SparseUNet', in_channels=4, sparse_shape=[17, 32, 32],
    order=('conv', 'norm', 'act'), norm_cfg=NORM, base_channels=4,
    output_channels=8, encoder_channels=((4, ), (8, ), (8, )),
    encoder_paddings=((1, ), (1, ), ((0, 1, 1), )),
    decoder_channels=((8, 8, 8), (8, 8, 4), (4, 4, 4)),
    decoder_paddings=((1, 0), (1, 0), (0, 1)))
MINK = dict(
    type='MinkUNetBackbone', in_channels=4, num_stages=2, base_channels=8,
    encoder_channels=[8, 16], encoder_blocks=[1, 1],
    decoder_channels=[16, 8], decoder_blocks=[1, 1], block_type='basic',
    sparseconv_backend='spconv')


def voxels(channels, shape, rows=300, batch=2):
    generator = torch.Generator().manual_seed(5)
    depth, height, width = shape
    cells = torch.randperm(
        batch * depth * height * width, generator=generator)[:rows]
    coors = torch.stack([
        cells // (depth * height * width), cells // (height * width) % depth,
        cells // width % height, cells % width
    ], 1).int()
    # Samples in order, as voxel layers give them.
    coors = coors[coors[:, 0].sort(stable=True)[1]]
    return torch.randn(rows, channels, generator=generator), coors


def run(model, kind):
    feats, coors = voxels(model_channels(kind), shape_of(kind))
    feats = feats.requires_grad_()
    if kind is ENCODER:
        out = model(feats, coors, 2)
    elif kind is UNET:
        out = model(feats, coors, 2)['spatial_features']
    else:
        # Rows of these go (batch, x, y, z) there; any order will do.
        out = model(feats, coors)
    out.square().mean().backward()
    return out, [feats.grad, *(p.grad for p in model.parameters())]


def model_channels(kind):
    return kind['in_channels']


def shape_of(kind):
    return kind.get('sparse_shape', [17, 24, 24])


def pair(kind):
    torch.manual_seed(3)
    stock = MODELS.build(copy.deepcopy(kind))
    turbo = copy.deepcopy(stock)
    assert convert_sparse(turbo) > 4
    return stock, turbo


@pytest.mark.parametrize('kind', [ENCODER, BLOCKS, UNET, MINK],
    ids=['encoder', 'blocks', 'unet', 'mink'])
def test_outputs_gradients_and_buffers_agree_over_steps(kind):
    stock, turbo = pair(kind)
    base = ENCODER if kind['type'] == 'mmdet3d.SparseEncoder' else kind
    for training in (True, True, False):
        results = []
        for model in (stock, turbo):
            model.train(training)
            model.zero_grad()
            results.append(run(model, base))
        (want, grads), (found, own_grads) = results
        torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-4)
        for one, other in zip(own_grads, grads, strict=True):
            if other is None:
                assert one is None
                continue
            gap = (one - other).norm() / other.norm().clamp(min=1e-6)
            assert gap < 1e-4
    for one, other in zip(turbo.buffers(), stock.buffers(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize('kind', [ENCODER, UNET, MINK],
                         ids=['encoder', 'unet', 'mink'])
def test_parameters_keep_names_order_and_identity(kind):
    model = MODELS.build(copy.deepcopy(kind))
    before = dict(model.named_parameters())
    keys = list(model.state_dict())
    random = torch.get_rng_state()
    convert_sparse(model)
    assert torch.equal(torch.get_rng_state(), random)
    after = dict(model.named_parameters())
    assert list(before) == list(after) and list(model.state_dict()) == keys
    assert all(before[name] is after[name] for name in before)
    assert not any(type(m).__module__.startswith('mmcv.ops.sparse')
                   for m in model.modules())
    assert convert_sparse(model) == 0


def test_hooks_of_replaced_layers_still_run():
    model = MODELS.build(copy.deepcopy(ENCODER))
    seen = []
    model.conv_input[0].register_forward_hook(
        lambda module, args, out: seen.append(type(module)))
    convert_sparse(model)
    run(model, ENCODER)
    assert len(seen) == 1 and issubclass(seen[0], SparseConvolution)


def test_the_pass_asks_for_it_where_there_is_a_sparse_encoder():
    cfg = Config(dict(model=dict(
        type='VoxelNet', middle_encoder=copy.deepcopy(ENCODER))))
    plan = make_plan(cfg)
    step = next(s for s in plan.steps if s.name == 'sparse_conv')
    assert step.status == 'applied', step.reason
    plan.apply(cfg)
    assert cfg.operator_modules == dict(sparse_conv=True)
    again = make_plan(cfg)
    assert next(s for s in again.steps
                if s.name == 'sparse_conv').reason == 'already so'
    plain = make_plan(Config(dict(model=dict(type='CenterPoint'))))
    step = next(s for s in plain.steps if s.name == 'sparse_conv')
    assert 'no sparse encoder' in step.reason


def test_a_foreign_tensor_is_taken_and_ours_goes_on():
    from mmcv.ops import SparseConvTensor as StockTensor
    feats, coors = voxels(5, ENCODER['sparse_shape'])
    layer = pair(ENCODER)[1].conv_input
    out = layer(StockTensor(feats, coors, ENCODER['sparse_shape'], 2))
    assert isinstance(out, SparseConvTensor)
