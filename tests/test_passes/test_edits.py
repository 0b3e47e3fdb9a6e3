"""The edit algebra: what commutes, what merges, what conflicts."""

import itertools

import pytest
from mmengine.config import Config, ConfigDict

from mmturbox.passes.edits import (
    EditConflict,
    Set,
    Splice,
    Wrap,
    apply_edits,
    as_path,
    check_conflicts,
    lookup,
)


def conflict(*edits):
    check_conflicts([(f'pass{i}', e) for i, e in enumerate(edits)])


def config():
    return Config(
        dict(
            loader=dict(workers=2, dataset=dict(type='A', n=1)),
            hooks=[dict(type='H0'), dict(type='H1'), dict(type='H2')]))


def test_paths_address_list_items_and_keys_with_dots():
    assert as_path('a.0.b') == ('a', 0, 'b')
    assert as_path(('a', 'x.y')) == ('a', 'x.y')
    assert lookup(config(), as_path('hooks.1.type')) == 'H1'
    assert lookup(config(), as_path('hooks.7.type'), 'none') == 'none'


def test_every_order_of_commuting_edits_gives_the_same_config():
    edits = [
        Set('loader.workers', 8),
        Set('loader.dataset.n', 2),
        Wrap('loader.dataset', 'Fast', key='dataset', size=3),
        Splice('hooks', 0, 1, [dict(type='N')]),
        Splice('hooks', 2, 3, []),
        Set('hooks.1.type', 'M'),
    ]
    conflict(*edits)
    for order in itertools.permutations(edits):
        cfg = config()
        apply_edits(cfg, order)
        assert cfg.to_dict() == dict(
            loader=dict(
                workers=8,
                dataset=dict(
                    type='Fast', size=3, dataset=dict(type='A', n=2))),
            hooks=[dict(type='N'), dict(type='M')])
        # Later code reads nodes by attribute.
        assert isinstance(cfg.loader.dataset.dataset, ConfigDict)


def test_equal_sets_merge_and_different_ones_name_both_passes():
    conflict(Set('a.b', 1), Set('a.b', 1))
    with pytest.raises(EditConflict, match=r"'pass0' and 'pass1'.*a\.b"):
        conflict(Set('a.b', 1), Set('a.b', 2))


@pytest.mark.parametrize('a, b', [
    (Set('a', dict(b=1)), Set('a.b', 1)),
    (Splice('h', 0, 2, []), Splice('h', 1, 3, [])),
    (Splice('h', 0, 2, []), Set('h.1.type', 'X')),
    (Splice('h', 0, 2, []), Wrap('h.0', 'X')),
    (Splice('h', 0, 2, []), Splice('h.1.items', 0, 0, [1])),
    (Wrap('d', 'X'), Wrap('d', 'Y')),
    (Wrap('d', 'X'), Set('d', 1)),
    (Set('h', []), Splice('h', 0, 0, [1])),
])
def test_overlapping_claims_conflict_in_either_order(a, b):
    for pair in ((a, b), (b, a)):
        with pytest.raises(EditConflict):
            conflict(*pair)


@pytest.mark.parametrize('a, b', [
    (Splice('h', 0, 1, []), Splice('h', 1, 2, [])),
    (Splice('h', 1, 1, [1]), Splice('h', 1, 1, [2])),
    (Splice('h', 0, 1, []), Set('h.1.type', 'X')),
    (Wrap('d', 'X'), Set('d.n', 1)),
    (Wrap('d', 'X'), Wrap('d.inner', 'Y')),
])
def test_disjoint_claims_do_not_conflict(a, b):
    conflict(a, b)
    conflict(b, a)
    assert a != b


def test_insertions_at_one_point_keep_the_order_of_the_passes():
    cfg = config()
    apply_edits(cfg, [
        Splice('hooks', 3, 3, [dict(type='X')]),
        Splice('hooks', 3, 3, [dict(type='Y')])
    ])
    assert [h.type for h in cfg.hooks] == ['H0', 'H1', 'H2', 'X', 'Y']


def test_an_insertion_before_a_replaced_item_survives():
    edits = [
        Splice('hooks', 0, 0, [dict(type='X')]),
        Splice('hooks', 0, 1, [dict(type='N')])
    ]
    for order in (edits, edits[::-1]):
        cfg = config()
        apply_edits(cfg, order)
        assert [h.type for h in cfg.hooks] == ['X', 'N', 'H1', 'H2']


def test_a_missing_list_or_parent_is_made():
    cfg = config()
    apply_edits(cfg, [
        Splice('custom_hooks', 0, 0, [dict(type='X')]),
        Set('default_hooks.info.type', 'I')
    ])
    assert cfg.custom_hooks[0].type == 'X'
    assert cfg.default_hooks.info.type == 'I'


def test_bad_splice_range_raises():
    with pytest.raises(ValueError, match='range'):
        Splice('h', 2, 1, [])
