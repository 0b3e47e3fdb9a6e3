"""The driver: selection, refusal, conflicts, purity, recording."""

import json
from copy import deepcopy

import pytest
from mmengine.config import Config

from mmturbox.passes import driver
from mmturbox.passes.base import (
    ConfigPass,
    Declined,
    Environment,
    Set,
    find_types,
    type_is,
)
from mmturbox.passes.driver import all_passes, make_plan
from mmturbox.passes.edits import EditConflict


class Faster(ConfigPass):
    name = 'faster'
    side = 'model'
    parity = 'close'
    changes = ('model.*', )
    options = dict(size=4, mode=None)

    def plan(self, cfg, env, size, mode):
        if not type_is(cfg['model'], 'Net'):
            return Declined('the model is no Net')
        return [Set('model.type', 'mmturbox.Net'), Set('model.size', size)]


class Rough(ConfigPass):
    name = 'rough'
    side = 'system'
    parity = 'statistical'
    changes = ('amp', )

    def plan(self, cfg, env):
        return [Set('amp', True)]


class OnlyCuda(Rough):
    name = 'only_cuda'
    parity = 'bitwise'
    needs = ('cuda', )


@pytest.fixture
def passes(monkeypatch):
    """Replace the registered passes by the given ones."""

    def use(*classes):
        monkeypatch.setattr(driver, 'all_passes',
                            lambda: {c.name: c()
                                     for c in classes})

    use(Rough, OnlyCuda, Faster)
    return use


def config(**turbo):
    cfg = Config(dict(model=dict(type='Net')))
    if turbo:
        cfg.turbo = turbo
    return cfg


def plan(cfg, **env):
    return make_plan(cfg, Environment(**env))


def status(cfg, **env):
    return {s.name: s.status for s in plan(cfg, **env).steps}


def test_default_level_takes_what_keeps_the_same_training(passes):
    assert status(config()) == dict(
        faster='applied', rough='off', only_cuda='declined')
    assert plan(config()).parity == 'close'


def test_level_max_adds_statistical_passes(passes):
    cfg = config(level='max')
    assert status(cfg, level='max')['rough'] == 'applied'
    assert plan(cfg, level='max').parity == 'statistical'


def test_one_pass_is_asked_for_or_turned_off_by_name(passes):
    assert status(config(rough=True))['rough'] == 'applied'
    assert status(config(faster=False))['faster'] == 'off'


def test_options_reach_the_pass(passes):
    cfg = config(faster=dict(size=9))
    plan(cfg).apply(cfg)
    assert cfg.model.to_dict() == dict(type='mmturbox.Net', size=9)


def test_applying_records_the_edits_and_planning_twice_changes_nothing(passes):
    cfg = config()
    plan(cfg).apply(cfg)
    assert cfg.turbo.applied['faster'] == [
        'model.type: Net -> mmturbox.Net', 'model.size: (absent) -> 4'
    ]
    again = deepcopy(cfg)
    second = plan(again)
    second.apply(again)
    assert again.to_dict() == cfg.to_dict()
    assert 'faster' not in [s.name for s in second.applied]


def test_a_dumped_config_that_asks_by_name_resumes(passes):
    cfg = config(faster=True)
    plan(cfg).apply(cfg)
    again = Config.fromstring(cfg.pretty_text, '.py')
    assert plan(again).applied == []


def test_making_a_plan_leaves_the_config_alone(passes):
    class Rude(Faster):

        def plan(self, cfg, env, size, mode):
            cfg['model']['type'] = 'Broken'
            return []

    passes(Rude)
    cfg = config()
    plan(cfg)
    assert cfg.model.type == 'Net'


def test_mmturbox_0_leaves_the_config_exactly_as_it_was(passes, monkeypatch):
    monkeypatch.setenv('MMTURBOX', '0')
    cfg = config()
    before = deepcopy(cfg.to_dict())
    made = plan(cfg)
    made.apply(cfg)
    assert cfg.to_dict() == before
    assert {s.reason for s in made.steps} == {'MMTURBOX=0'}


@pytest.mark.parametrize('turbo, error, match', [
    (dict(fastr=True), ValueError, "'fastr'.*did you mean 'faster'"),
    (dict(level='ultra'), ValueError, 'same, max'),
    (dict(faster=dict(sice=1)), ValueError, "'sice'.*'size'"),
    (dict(faster=dict(size='big')), TypeError, r'turbo\.faster\.size.*int'),
    (dict(faster=3), TypeError, r'turbo\.faster must be'),
    (dict(rough=dict(x=1)), ValueError, 'takes no options'),
    (dict(only_cuda=True), ValueError, 'only_cuda.*device is cpu'),
])
def test_bad_turbo_options_raise_one_clear_error(passes, turbo, error, match):
    with pytest.raises(error, match=match):
        plan(config(**turbo))


@pytest.mark.parametrize('turbo', ['max', ['faster'], True])
def test_turbo_that_is_no_dict_raises(passes, turbo):
    cfg = config()
    cfg.turbo = turbo
    with pytest.raises(TypeError, match='turbo must be a dict'):
        plan(cfg)


def test_two_passes_on_one_path_raise(passes):
    class Other(Faster):
        name = 'other'

        def plan(self, cfg, env, size, mode):
            return [Set('model.type', 'other.Net')]

    passes(Faster, Other)
    with pytest.raises(EditConflict, match="'faster' and 'other'"):
        plan(config())


def test_an_edit_outside_the_declared_changes_raises(passes):
    class Wide(Faster):

        def plan(self, cfg, env, size, mode):
            return [Set('lr', 1)]

    passes(Wide)
    with pytest.raises(RuntimeError, match='outside'):
        plan(config())


# KF-F4: options from the command line arrive as merged dictionaries.
def test_turbo_options_from_the_command_line(passes):
    cfg = config()
    cfg.merge_from_dict({
        'turbo.level': 'same',
        'turbo.faster.size': 7,
        'turbo.faster.mode': None,
        'turbo.rough': True
    })
    plan(cfg).apply(cfg)
    assert cfg.model.size == 7 and cfg.amp is True


def test_the_table_and_the_json_name_every_pass_and_its_reason(passes):
    made = plan(config())
    text = made.table()
    for word in ('faster', 'model.type: Net -> mmturbox.Net', 'only_cuda',
                 'needs CUDA', 'statistical'):
        assert word in text, word
    assert json.loads(json.dumps(made.to_dict()))['parity'] == 'close'


def test_plans_are_compared_by_their_digest(passes):
    assert plan(config()).digest() == plan(config()).digest()
    assert plan(config()).digest() != plan(config(faster=False)).digest()


def test_every_registered_pass_states_its_fields():
    for item in all_passes().values():
        assert item.side in ('system', 'data', 'model')
        assert item.parity in ('bitwise', 'close', 'statistical')
        assert item.changes and item.__doc__
        assert driver.unmet_need(item, Environment()) is None or item.needs


def test_types_match_as_string_scoped_string_and_class():
    class Net:
        pass

    Net.__module__ = 'mmdet3d.models'
    assert type_is(dict(type='Net'), 'Net')
    assert type_is(dict(type='mmdet3d.Net'), 'Net')
    assert type_is(dict(type=Net), 'mmdet3d.Net')
    assert not type_is(dict(type='mmdet.Net'), 'mmdet3d.Net')
    assert not type_is(dict(type='mmturbox.Net'), 'Net')
    assert not type_is(dict(), 'Net')
    cfg = Config(dict(model=dict(a=[dict(type='Net')], b=dict(type='Net'))))
    assert list(find_types(cfg, 'Net', under='model')) == [('model', 'a', 0),
                                                          ('model', 'b')]


def test_planning_does_not_format_the_config(passes, monkeypatch):
    # Config.pretty_text runs a code formatter: seconds for a real config.
    def formatted(self):
        raise AssertionError('the config was formatted')

    monkeypatch.setattr(Config, 'pretty_text', property(formatted))
    cfg = config()
    plan(cfg).apply(cfg)
    assert cfg.model.type == 'mmturbox.Net'
