"""Pass pillar_encoder: where it applies, where and why it declines."""

import copy

import pytest

from mmturbox.passes.base import Declined, Environment
from mmturbox.passes.edits import Set, apply_edits
from mmturbox.passes.pillar_encoder import PillarEncoder

MODEL = dict(
    type='CenterPoint',
    pts_voxel_encoder=dict(
        type='PillarFeatureNet', feat_channels=[64], legacy=False))


def test_swaps_the_type_only_and_once():
    cfg = dict(model=copy.deepcopy(MODEL))
    edits = PillarEncoder().plan(cfg, Environment())
    assert edits == [
        Set('model.pts_voxel_encoder.type', 'mmturbox.PillarFeatureNet')
    ]
    assert PillarEncoder().allows(edits[0])
    apply_edits(cfg, edits)
    assert isinstance(PillarEncoder().plan(cfg, Environment()), Declined)


@pytest.mark.parametrize(('options', 'reason'), [
    (dict(legacy=True), 'legacy mode'),
    (dict(feat_channels=[64, 64]), 'several layers'),
    (dict(mode='avg'), 'by avg'),
    (dict(norm_cfg=dict(type='naiveSyncBN1d')), 'naiveSyncBN1d, not BN1d'),
])
def test_declines_with_the_reason(options, reason):
    encoder = dict(MODEL['pts_voxel_encoder'], **options)
    cfg = dict(model=dict(type='X', pts_voxel_encoder=encoder))
    assert reason in PillarEncoder().plan(cfg, Environment()).reason


def test_stock_default_is_legacy_and_declined():
    cfg = dict(model=dict(pts_voxel_encoder=dict(type='PillarFeatureNet')))
    assert 'legacy' in PillarEncoder().plan(cfg, Environment()).reason


@pytest.mark.parametrize('device', ['cpu', 'cuda', 'npu'])
def test_declines_without_native_operators(monkeypatch, device):
    cfg = dict(model=copy.deepcopy(MODEL))
    env = Environment(device=device)
    monkeypatch.setattr('mmturbox.ops.native', lambda kind: kind != device)
    reason = PillarEncoder().plan(cfg, env).reason
    assert f'no native operators for {device}; ' in reason
    monkeypatch.setattr('mmturbox.ops.native', lambda kind: kind == device)
    assert len(PillarEncoder().plan(cfg, env)) == 1


def test_declines_where_the_twin_would_run_as_stock():
    cfg = dict(
        model=copy.deepcopy(MODEL), optim_wrapper=dict(type='AmpOptimWrapper'))
    assert 'autocast' in PillarEncoder().plan(cfg, Environment()).reason
    cfg = dict(model=copy.deepcopy(MODEL), sync_bn='torch')
    assert len(PillarEncoder().plan(cfg, Environment())) == 1
    ranks = Environment(world_size=2)
    assert "sync_bn='torch'" in PillarEncoder().plan(cfg, ranks).reason
