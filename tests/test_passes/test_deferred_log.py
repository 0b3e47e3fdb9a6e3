import pytest
from mmengine.config import Config
from mmengine.hooks import RuntimeInfoHook

from mmturbox.passes.base import Declined, Environment, Set
from mmturbox.passes.deferred_log import DeferredLog
from mmturbox.passes.edits import apply_edits

EDIT = Set('default_hooks.runtime_info.type', 'mmturbox.RuntimeInfoHook')


def plan(**default_hooks):
    return DeferredLog().plan(
        Config(dict(default_hooks=default_hooks)), Environment())


@pytest.mark.parametrize('hooks', [
    {}, dict(logger=dict(type='LoggerHook')),
    dict(runtime_info=dict(type='RuntimeInfoHook')),
    dict(runtime_info=dict(type='mmengine.RuntimeInfoHook')),
    dict(runtime_info=dict(type=RuntimeInfoHook))
])
def test_the_default_hook_is_replaced(hooks):
    assert plan(**hooks) == [EDIT]


def test_applies_without_default_hooks():
    cfg = Config({})
    edits = DeferredLog().plan(cfg, Environment())
    apply_edits(cfg, edits)
    assert cfg.default_hooks.runtime_info.type == EDIT.value


@pytest.mark.parametrize('node', [
    None,
    dict(type='MyRuntimeInfoHook'),
    dict(type='mine.RuntimeInfoHook'),
])
def test_other_hooks_are_declined_with_the_reason(node):
    out = plan(runtime_info=node)
    assert isinstance(out, Declined)
    assert 'default_hooks.runtime_info' in out.reason


def test_planning_twice_gives_no_edits_and_keeps_other_keys():
    cfg = Config(
        dict(
            default_hooks=dict(
                runtime_info=dict(type='RuntimeInfoHook', priority=5))))
    apply_edits(cfg, DeferredLog().plan(cfg, Environment()))
    assert cfg.default_hooks.runtime_info.priority == 5
    assert DeferredLog().plan(cfg, Environment()) == []


def test_edits_stay_inside_the_declared_paths():
    assert all(DeferredLog().allows(e) for e in plan())
