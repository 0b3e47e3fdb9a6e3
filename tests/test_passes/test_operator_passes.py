"""Passes of the operator families: golden edits, and why they decline."""

import pytest

from mmturbox.ops import mmcv_ext
from mmturbox.passes.attention import Attention
from mmturbox.passes.base import Declined, Environment
from mmturbox.passes.deform_conv import DeformConv
from mmturbox.passes.edits import Set, apply_edits
from mmturbox.passes.losses import Losses
from mmturbox.passes.mean_voxels import MeanVoxels
from mmturbox.passes.nms import NMS
from mmturbox.passes.points import Points
from mmturbox.passes.roi_align import RoIAlign
from mmturbox.passes.voxels import Voxels

MODEL = dict(
    data_preprocessor=dict(
        type='Det3DDataPreprocessor', voxel=True, voxel_type='hard',
        voxel_layer=dict(max_num_points=10, max_voxels=(90, 120))),
    voxel_encoder=dict(type='HardSimpleVFE'),
    pts_voxel_encoder=dict(type='mmdet3d.DynamicVFE'),
    backbone=dict(dcn=dict(type='DCNv2')),
    head=dict(
        layers=[dict(type='mmcv.MultiScaleDeformableAttention')],
        loss_cls=dict(type='mmdet.FocalLoss')))
TYPES = {
    Attention: [(('head', 'layers', 0), 'MultiScaleDeformableAttention')],
    DeformConv: [(('backbone', 'dcn'), 'DCNv2')],
    Losses: [(('head', 'loss_cls'), 'FocalLoss')],
    Voxels: [(('pts_voxel_encoder', ), 'DynamicVFE')],
}


def config():
    import copy
    return dict(model=copy.deepcopy(MODEL))


@pytest.mark.parametrize('kind', TYPES)
def test_stock_types_become_twins_once(kind):
    cfg = config()
    edits = kind().plan(cfg, Environment())
    assert edits == [
        Set(('model', *path, 'type'), f'mmturbox.{name}')
        for path, name in TYPES[kind]
    ]
    assert all(kind().allows(edit) for edit in edits)
    apply_edits(cfg, edits)
    assert isinstance(kind().plan(cfg, Environment()), Declined)


@pytest.mark.parametrize('kind', [*TYPES, NMS, Points, RoIAlign])
def test_calls_are_asked_for_over_a_compiled_mmcv_only(kind, monkeypatch):
    edit = Set(('operator_calls', kind.name), True)
    empty = dict(model=dict(type='X'))
    reason = kind().plan(empty, Environment()).reason
    assert "mmcv._ext is mmturbox's here" in reason
    monkeypatch.setattr(mmcv_ext, 'status', lambda: 'compiled; it works')
    edits = kind().plan(config(), Environment())
    assert edits[-1] == edit and kind().allows(edit)
    assert kind().plan(empty, Environment()) == [edit]


def test_a_device_without_kernels_is_left_to_stock():
    for kind in (*TYPES, NMS):
        reason = kind().plan(config(), Environment(device='npu')).reason
        assert 'no native operators for npu' in reason


def test_means_of_voxels_change_both_ends_together():
    cfg = config()
    edits = MeanVoxels().plan(cfg, Environment())
    assert edits == [
        Set('model.data_preprocessor.mean_voxels', True),
        Set('model.data_preprocessor.type', 'mmturbox.Det3DDataPreprocessor'),
        Set('model.voxel_encoder.type', 'mmturbox.HardSimpleVFE'),
    ]
    apply_edits(cfg, edits)
    assert isinstance(MeanVoxels().plan(cfg, Environment()), Declined)


@pytest.mark.parametrize('part, value', [
    ('voxel_type', 'dynamic'), ('voxel', False),
    ('voxel_layer', dict(max_num_points=-1, max_voxels=9)),
    ('voxel_layer', dict(max_num_points=9, max_voxels=(-1, -1))),
])
def test_means_need_hard_voxels_with_limits(part, value):
    cfg = config()
    cfg['model']['data_preprocessor'][part] = value
    reason = MeanVoxels().plan(cfg, Environment()).reason
    assert 'no hard voxels with limits' in reason
