"""Twin of mmcv's multi-scale deformable attention."""

import pytest
import torch
from mmengine.registry import MODELS as ROOT

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402

mmcv_ext.install()
mmcv_ops = pytest.importorskip('mmcv.ops')

from mmturbox.models.layers.ms_deform_attn import (  # noqa: E402
    MultiScaleDeformableAttention,
)

SETTINGS = dict(embed_dims=24, num_heads=3, num_levels=2, num_points=2,
                dropout=0.)


def make_pair(**settings):
    """The twin and stock with equal weights, no offset or weight zero."""
    settings = SETTINGS | settings
    stock = mmcv_ops.MultiScaleDeformableAttention(**settings)
    for parameter in stock.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    twin = MultiScaleDeformableAttention(**settings)
    twin.load_state_dict(stock.state_dict())
    return twin, stock


def make_input(batch_first=False, width=2, batch=2):
    shapes = torch.tensor([(4, 5), (2, 3)])
    inputs = dict(
        query=torch.randn(batch, 7, 24),
        value=torch.randn(batch, 26, 24),
        query_pos=torch.randn(batch, 7, 24))
    if not batch_first:
        inputs = {k: t.transpose(0, 1) for k, t in inputs.items()}
    return dict(
        inputs,
        reference_points=torch.rand(batch, 7, 2, width),
        spatial_shapes=shapes,
        level_start_index=torch.tensor([0, 20]))


def assert_alike(twin, stock, inputs):
    """Outputs and all gradients."""
    results, above = [], None
    for module in (twin, stock):
        leaves = {
            k: t.clone().requires_grad_() if t.is_floating_point() else t
            for k, t in inputs.items()
        }
        out = module(**leaves)
        above = torch.randn_like(out) if above is None else above
        module.zero_grad()
        out.backward(above)
        results.append([out, *(t.grad for t in leaves.values()
                               if t.is_floating_point()),
                        *(p.grad for p in module.parameters())])
    for a, b in zip(*results, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('batch_first', [False, True])
@pytest.mark.parametrize('width', [2, 4])
@pytest.mark.parametrize('batch', [1, 3])
def test_outputs_and_gradients_are_those_of_stock(batch_first, width, batch):
    """KF-A10: any batch, for an im2col_step that does not divide it."""
    pair = make_pair(batch_first=batch_first, im2col_step=2)
    assert_alike(*pair, make_input(batch_first, width, batch))


def test_padding_identity_and_narrow_values_are_as_in_stock():
    pair = make_pair(value_proj_ratio=0.5)
    inputs = make_input()
    inputs['key_padding_mask'] = torch.rand(2, 26) < 0.5
    inputs['identity'] = torch.randn(7, 2, 24)
    assert_alike(*pair, inputs)
    inputs = make_input()
    inputs['reference_points'] = torch.rand(2, 26, 2, 2)
    inputs['query'] = inputs.pop('value')
    del inputs['query_pos']
    assert_alike(*pair, inputs)


def test_state_dicts_load_both_ways_and_start_alike():
    torch.manual_seed(0)
    twin = MultiScaleDeformableAttention(**SETTINGS)
    torch.manual_seed(0)
    stock = mmcv_ops.MultiScaleDeformableAttention(**SETTINGS)
    assert list(twin.state_dict()) == list(stock.state_dict())
    for a, b in zip(twin.parameters(), stock.parameters(), strict=True):
        assert torch.equal(a, b)
    stock.load_state_dict(twin.state_dict())
    twin.load_state_dict(stock.state_dict())


def test_it_is_found_by_name():
    import mmturbox.registry  # noqa: F401
    built = ROOT.build(dict(type='mmturbox.MultiScaleDeformableAttention',
                            **SETTINGS))
    assert type(built) is MultiScaleDeformableAttention
    assert isinstance(built, mmcv_ops.MultiScaleDeformableAttention)


def test_starts_of_levels_may_be_left_out():
    twin, _ = make_pair()
    inputs = make_input()
    expected = twin(**inputs)
    assert torch.equal(twin(**inputs | dict(level_start_index=None)),
                       expected)


def test_levels_that_do_not_add_up_and_odd_points_are_errors():
    twin, _ = make_pair()
    inputs = make_input()
    with pytest.raises(ValueError, match='26'):
        twin(**inputs | dict(spatial_shapes=torch.tensor([(4, 5), (2, 2)])))
    with pytest.raises(ValueError, match='reference_points'):
        twin(**inputs | dict(reference_points=torch.rand(2, 7, 2, 3)))


def test_nothing_is_read_back_from_a_device():
    """Tensors of the meta device have no data to read."""
    twin = MultiScaleDeformableAttention(**SETTINGS).to('meta')
    inputs = {k: t.to('meta') for k, t in make_input().items()}
    mask = torch.zeros(2, 26, dtype=torch.bool, device='meta')
    out = twin(**inputs, key_padding_mask=mask)
    out.sum().backward()
    assert out.shape == (7, 2, 24) and out.is_meta
    assert twin.value_proj.weight.grad.is_meta
