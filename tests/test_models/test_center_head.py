"""mmturbox.CenterHead against stock: losses, gradients, branches, reads."""

import copy

import pytest
import torch
from torch import nn

from mmturbox.analysis.counting import Counter
from mmturbox.testing.center_point import (
    center_point_config,
    import_mmdet3d,
    random_instances,
)

SIZE = 16


@pytest.fixture(scope='module')
def build():
    import_mmdet3d()
    from mmdet3d.registry import MODELS
    base = center_point_config().model

    def build(kind, **options):
        torch.manual_seed(0)
        cfg = copy.deepcopy(base.pts_bbox_head)
        cfg.update(
            type=kind,
            train_cfg=copy.deepcopy(base.train_cfg.pts),
            test_cfg=copy.deepcopy(base.test_cfg.pts))
        cfg.update(copy.deepcopy(options))
        return MODELS.build(cfg)

    return build


def feats(seed=0):
    torch.manual_seed(seed)
    return torch.randn(2, 48, SIZE, SIZE)


def batch(counts=(30, 40), hard=False):
    return [random_instances(count, i, hard) for i, count in enumerate(counts)]


def losses_and_gradients(head, instances, x=None):
    x = (feats() if x is None else x).clone().requires_grad_()
    head.zero_grad()
    losses = head.loss_by_feat(head([x]), instances)
    sum(losses.values()).backward()
    grads = {name: p.grad.clone() for name, p in head.named_parameters()}
    return losses, dict(grads, input=x.grad)


def assert_close(got, expected, tolerance=1e-5):
    assert list(got) == list(expected)
    for name, value in expected.items():
        # Below the floor a sum of signs has cancelled but for rounding.
        gap = (got[name] - value).norm() / value.norm().clamp(min=1e-4)
        assert gap <= tolerance, name


def assert_same(stock, turbo, instances):
    turbo.load_state_dict(stock.state_dict())
    for ours, theirs in zip(
            losses_and_gradients(turbo, instances),
            losses_and_gradients(stock, instances),
            strict=True):
        assert_close(ours, theirs)
    for ours, theirs in zip(turbo.buffers(), stock.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_losses_gradients_and_statistics_agree_with_stock(build):
    stock, turbo = build('CenterHead'), build('mmturbox.CenterHead')
    assert turbo._branches is not None
    assert_same(stock, turbo, batch())


def test_state_dicts_load_both_ways(build):
    stock, turbo = build('CenterHead'), build('mmturbox.CenterHead')
    assert list(stock.state_dict()) == list(turbo.state_dict())
    stock.load_state_dict(turbo.state_dict())


def test_batch_without_boxes_reaches_the_same_parameters(build):
    # KF-G3
    stock, turbo = build('CenterHead'), build('mmturbox.CenterHead')
    assert_same(stock, turbo, batch((0, 0)))
    losses, grads = losses_and_gradients(turbo, batch((0, 0)))
    full_losses, full_grads = losses_and_gradients(turbo, batch())
    assert losses.keys() == full_losses.keys()
    assert grads.keys() == full_grads.keys()


def test_velocity_that_is_nan_has_no_weight(build):
    instances = batch((12, 12))
    losses, _ = losses_and_gradients(build('mmturbox.CenterHead'), instances)
    instances[0].bboxes_3d.tensor[3, 7:] = float('nan')
    head = build('mmturbox.CenterHead')
    with_nan, grads = losses_and_gradients(head, instances)
    assert all(torch.isfinite(one) for one in with_nan.values())
    assert all(torch.isfinite(one).all() for one in grads.values())
    changed = [key for key in losses if losses[key] != with_nan[key]]
    task = int(instances[0].labels_3d[3] > 0)
    assert len(changed) == 1 and 'loss_bbox' in changed[0], task


def test_step_reads_nothing_and_launches_little(build):
    head, instances = build('mmturbox.CenterHead'), batch((50, 50))
    losses_and_gradients(head, instances)
    x = feats()
    head.zero_grad()
    with Counter() as targets:
        head.get_targets(instances)
    with Counter() as step:
        losses = head.loss_by_feat(head([x]), instances)
        sum(losses.values()).backward()
    assert targets.syncs == 0 and targets.launches <= 75
    assert step.syncs == 0 and step.launches <= 420


def test_predictions_agree_with_stock_in_evaluation(build):
    stock, turbo = build('CenterHead').eval(), build('mmturbox.CenterHead')
    turbo.load_state_dict(stock.state_dict())
    turbo.eval()
    with torch.no_grad():
        expected, got = stock([feats()]), turbo([feats()])
    assert len(got) == len(expected) == 6
    for ours, theirs in zip(got, expected, strict=True):
        assert ours[0].keys() == theirs[0].keys()
        for name, value in theirs[0].items():
            torch.testing.assert_close(
                ours[0][name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('options', [
    dict(loss_bbox=dict(
        type='mmdet.SmoothL1Loss', reduction='mean', loss_weight=.5)),
    dict(loss_cls=dict(
        type='mmdet.GaussianFocalLoss', alpha=1.5, gamma=3., loss_weight=2.)),
], ids=['other box loss', 'other focal settings'])
def test_other_losses_agree_with_stock(build, options):
    assert_same(
        build('CenterHead', **options),
        build('mmturbox.CenterHead', **options), batch())


def test_unfused_predictions_give_the_same_losses(build):
    head, instances = build('mmturbox.CenterHead'), batch()
    fused = head.loss_by_feat(head([feats()]), instances)
    plain = build('mmturbox.CenterHead')
    plain._branches = None
    assert_close(plain.loss_by_feat(plain([feats()]), instances), fused)


def test_layers_replaced_after_the_build_run_one_by_one(build):
    head = build('mmturbox.CenterHead')
    block = head.task_heads[0].reg[0]
    block.bn = nn.Identity()
    assert not head._branches.ready
    assert type(head([feats()])) is tuple


def test_heads_of_other_structure_run_one_by_one(build):
    options = dict(
        common_heads=dict(
            reg=(2, 1), height=(1, 2), dim=(3, 2), rot=(2, 2), vel=(2, 3)))
    stock = build('CenterHead', **options)
    turbo = build('mmturbox.CenterHead', **options)
    assert turbo._branches is None
    assert_same(stock, turbo, batch())


def test_copies_use_their_own_layers(build):
    head = build('mmturbox.CenterHead').eval()
    twin = copy.deepcopy(head)
    with torch.no_grad():
        for p in head.parameters():
            p.zero_()
    assert twin([feats()])[0][0]['reg'].abs().max() > 0


def test_without_train_cfg_targets_are_refused(build):
    head = build('mmturbox.CenterHead', train_cfg=None)
    with pytest.raises(ValueError, match='needs train_cfg'):
        head.get_targets(batch())


def test_training_after_inference_mode(build):
    head, instances = build('mmturbox.CenterHead'), batch()
    with torch.inference_mode():
        head.loss_by_feat(head([feats()]), instances)
    head.load_state_dict(build('mmturbox.CenterHead').state_dict())
    assert_close(
        losses_and_gradients(head, instances)[1],
        losses_and_gradients(build('mmturbox.CenterHead'), instances)[1])


def test_replaced_predictions_are_those_of_the_loss(build):
    results, instances = [], batch()
    for kind in ('CenterHead', 'mmturbox.CenterHead'):
        head = build(kind)
        preds = head([feats()])
        preds[1][0]['dim'] = preds[1][0]['dim'] * 2
        preds[2][0]['heatmap'] = preds[2][0]['heatmap'] - 1
        results.append(head.loss_by_feat(preds, instances))
    assert_close(*reversed(results))


@pytest.mark.parametrize('place', [
    lambda head: head.task_heads[2],
    lambda head: head.task_heads[2].vel,
    lambda head: head.task_heads[2].vel[0].conv,
])
def test_hooks_are_called_and_announced_once(build, place, monkeypatch):
    texts, calls = [], []
    monkeypatch.setattr(
        'mmturbox.models.dense_heads.center_head._announce', texts.append)
    head = build('mmturbox.CenterHead')
    place(head).register_forward_hook(lambda *args: calls.append(args))
    for _ in range(2):
        head([feats()])
    assert len(calls) == 2 and len(texts) == 1
    assert 'have hooks' in texts[0]


def test_replaced_branch_is_used(build):
    head = build('mmturbox.CenterHead').eval()
    head.task_heads[1].reg = nn.Conv2d(16, 2, 1)
    assert type(head([feats()])) is tuple


def test_autocast_gives_the_types_of_stock(build):
    found = []
    for kind in ('CenterHead', 'mmturbox.CenterHead'):
        with torch.autocast('cpu', torch.bfloat16):
            preds = build(kind)([feats()])
        found.append([{name: part.dtype for name, part in one[0].items()}
                      for one in preds])
    assert found[0] == found[1]
