"""Pass center_head: where it applies, where and why it declines."""

import copy
import sys

import pytest

from mmturbox.passes.base import Declined, Environment
from mmturbox.passes.center_head import CenterHeadPass
from mmturbox.passes.edits import Set, apply_edits
from mmturbox.testing.center_point import import_mmdet3d

SETTINGS = dict(
    grid_size=[64, 64, 1],
    point_cloud_range=[0, 0, 0, 1, 1, 1],
    voxel_size=[.1, .1, .1],
    out_size_factor=4,
    max_objs=500,
    dense_reg=1,
    gaussian_overlap=.1,
    min_radius=2,
    code_weights=[1.] * 10)
MODEL = dict(
    type='CenterPoint',
    pts_bbox_head=dict(type='CenterHead'),
    train_cfg=dict(pts=SETTINGS))


def plan(model):
    return CenterHeadPass().plan(dict(model=model), Environment())


@pytest.mark.parametrize('kind', ['CenterHead', 'mmdet3d.CenterHead'])
def test_swaps_the_type_only_and_once(kind):
    cfg = dict(model=copy.deepcopy(MODEL))
    cfg['model']['pts_bbox_head']['type'] = kind
    edits = CenterHeadPass().plan(cfg, Environment())
    assert edits == [
        Set('model.pts_bbox_head.type', 'mmturbox.CenterHead')
    ]
    assert CenterHeadPass().allows(edits[0])
    apply_edits(cfg, edits)
    assert isinstance(CenterHeadPass().plan(cfg, Environment()), Declined)


def test_settings_beside_a_plain_head_are_found():
    model = dict(
        type='Detector', bbox_head=dict(type='CenterHead'), train_cfg=SETTINGS)
    assert plan(model) == [Set('model.bbox_head.type', 'mmturbox.CenterHead')]


def test_declines_with_the_reason():
    assert plan(dict(type='X')).reason == 'the model has no CenterHead'
    assert 'no train_cfg' in plan(dict(MODEL, train_cfg=None)).reason
    lacking = dict(MODEL, train_cfg=dict(pts=dict(grid_size=[1, 1, 1])))
    assert 'lacks point_cloud_range, voxel_size' in plan(lacking).reason
    other = dict(MODEL, pts_bbox_head=dict(type='mine.CenterHead'))
    assert 'no CenterHead' in plan(other).reason


@pytest.fixture
def own_scope():
    import_mmdet3d()
    from mmengine.registry import MODELS, Registry

    own = Registry('model', parent=MODELS, scope='own')
    kind = type('CenterHead', (), {'__module__': 'own.heads'})
    own.register_module(module=kind)
    yield kind
    del MODELS._children['own']


def test_foreign_class_of_the_same_name_is_declined(own_scope, monkeypatch):
    import mmdet3d.registry
    cfg = dict(model=MODEL, default_scope='own')
    plan = CenterHeadPass().plan
    assert plan(cfg, Environment()).reason == "CenterHead is own.heads's own"
    cfg['default_scope'] = 'mmdet3d'
    assert len(plan(cfg, Environment())) == 1
    # As by register_module(force=True).
    monkeypatch.setitem(mmdet3d.registry.MODELS._module_dict, 'CenterHead',
                        own_scope)
    assert plan(cfg, Environment()).reason == "CenterHead is own.heads's own"


def test_name_that_does_not_resolve_is_taken_for_stock(monkeypatch):
    cfg = dict(model=MODEL, default_scope='mmdet3d')
    monkeypatch.setitem(sys.modules, 'mmdet3d.models', None)
    assert len(CenterHeadPass().plan(cfg, Environment())) == 1
