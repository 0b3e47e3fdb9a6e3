import pytest
import torch
from torch import nn

from mmturbox.optim.merged_groups import MergedGroups


def make(n=6, **overrides):
    params = [nn.Parameter(torch.randn(3)) for _ in range(n)]
    optimizer = torch.optim.AdamW([
        dict(params=[p], lr=0.1 if i % 2 else 0.2, initial_lr=i)
        for i, p in enumerate(params)
    ])
    return params, optimizer, MergedGroups(optimizer, overrides)


def test_groups_of_equal_settings_become_one():
    params, optimizer, merged = make(fused=True)
    groups = merged.merge()
    assert [g['lr'] for g in groups] == [0.2, 0.1]
    assert [id(p) for p in groups[0]['params']] == [id(p) for p in params[::2]]
    assert all(g['fused'] for g in groups)
    assert set(groups[0]) == set(optimizer.defaults) | {'params'}


def test_users_groups_are_untouched_and_back_after_the_step():
    _, optimizer, merged = make(fused=True)
    users, flags = optimizer.param_groups, [
        g['fused'] for g in optimizer.param_groups
    ]
    with pytest.raises(KeyboardInterrupt), merged.swapped_in():
        assert len(optimizer.param_groups) == 2
        raise KeyboardInterrupt
    assert optimizer.param_groups is users
    assert [g['fused'] for g in users] == flags == [None] * 6


def test_a_changed_setting_of_one_group_splits_it_off():
    _, optimizer, merged = make()
    assert len(merged.merge()) == 2
    optimizer.param_groups[3]['weight_decay'] = 0.
    groups = merged.merge()
    assert [len(g['params']) for g in groups] == [3, 2, 1]
    assert groups[2]['weight_decay'] == 0.


def test_groups_and_parameters_added_later_are_stepped():
    _, optimizer, merged = make()
    late = [nn.Parameter(torch.randn(3)) for _ in range(2)]
    optimizer.add_param_group(dict(params=late[:1], lr=0.1))
    optimizer.param_groups[0]['params'].append(late[1])
    stepped = [id(p) for g in merged.merge() for p in g['params']]
    assert len(stepped) == len(set(stepped)) == 8
    assert {id(p) for p in late} <= set(stepped)


def test_settings_given_as_lists_are_merged():
    _, optimizer, merged = make()
    for group in optimizer.param_groups:
        group['betas'] = [0.9, 0.99]
    groups = merged.merge()
    assert len(groups) == 2
    assert groups[0]['betas'] == (0.9, 0.99)


def test_without_merging_only_the_overrides_are_made():
    _, optimizer, _ = make()
    merged = MergedGroups(optimizer, dict(fused=True), merge=False)
    groups = merged.merge()
    assert len(groups) == 6
    assert all(g['fused'] for g in groups)
    assert not any(g['fused'] for g in optimizer.param_groups)
