"""Passes voxelize and pillars_scatter: where they apply and decline."""

import copy

import pytest

from mmturbox.passes import voxelize
from mmturbox.passes.base import Declined, Environment
from mmturbox.passes.edits import Set, apply_edits
from mmturbox.passes.pillars_scatter import PillarsScatter
from mmturbox.passes.voxelize import Voxelize

MODEL = dict(
    type='CenterPoint',
    data_preprocessor=dict(type='Det3DDataPreprocessor', voxel=True),
    pts_middle_encoder=dict(type='mmdet3d.PointPillarsScatter'))
EDITS = {
    Voxelize:
    Set('model.data_preprocessor.type', 'mmturbox.Det3DDataPreprocessor'),
    PillarsScatter:
    Set('model.pts_middle_encoder.type', 'mmturbox.PointPillarsScatter'),
}


@pytest.mark.parametrize('kind', EDITS)
def test_swaps_the_type_only_and_once(kind):
    cfg = dict(model=copy.deepcopy(MODEL))
    edits = kind().plan(cfg, Environment())
    assert edits == [EDITS[kind]]
    assert kind().allows(edits[0])
    apply_edits(cfg, edits)
    assert isinstance(kind().plan(cfg, Environment()), Declined)


def why(preprocessor, device='cpu'):
    cfg = dict(model=dict(MODEL, data_preprocessor=preprocessor))
    return Voxelize().plan(cfg, Environment(device=device)).reason


def test_declines_with_the_reason():
    kind = 'Det3DDataPreprocessor'
    assert 'no Det3DDataPreprocessor' in why(dict(type='DetDataPreprocessor'))
    assert 'makes no voxels' in why(dict(type=kind))
    assert why(dict(type=kind, voxel=True, voxel_type='cylindrical')) == (
        'cylindrical voxels are made by stock')
    assert PillarsScatter().plan(dict(model=dict(type='X')),
                                 Environment()).reason == (
                                     'the model has no PointPillarsScatter')


def test_declines_where_mmcv_alone_has_a_kernel(monkeypatch):
    monkeypatch.setattr(voxelize, '_mmcv_has_kernels', lambda: True)
    monkeypatch.setattr('mmturbox.ops.native', lambda device: device == 'cpu')
    assert why(MODEL['data_preprocessor'], 'cuda') == (
        'mmcv has a kernel for cuda, and mmturbox has none')
