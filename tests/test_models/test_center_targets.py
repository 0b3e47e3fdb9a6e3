"""CenterPoint targets of a batch against stock, bit for bit."""

import copy

import pytest
import torch
from mmengine.structures import InstanceData

from mmturbox.testing.center_point import (
    center_point_config,
    import_mmdet3d,
    random_instances,
)

VARIANTS = {
    'default': {},
    'truncated': dict(max_objs=2, dense_reg=2),
    'not square': dict(
        grid_size=[64, 40, 1], point_cloud_range=[-51.2, -32, -5, 51.2, 32,
                                                  3]),
    'unequal cells': dict(
        voxel_size=[1.6, .8, 8], grid_size=[64, 128, 1]),
    'small gaussians': dict(gaussian_overlap=.7, min_radius=0),
}


@pytest.fixture(scope='module')
def build():
    import_mmdet3d()
    from mmdet3d.registry import MODELS
    base = center_point_config().model

    def build(kind, train_cfg=None, **options):
        cfg = copy.deepcopy(base.pts_bbox_head)
        cfg.update(type=kind, **options)
        settings = copy.deepcopy(base.train_cfg.pts)
        settings.update(train_cfg or {})
        return MODELS.build(dict(cfg, train_cfg=settings))

    return build


def assert_bitwise(got, expected):
    assert [len(one) for one in got] == [len(one) for one in expected]
    for ours, theirs in zip(sum(got, []), sum(expected, []), strict=True):
        assert ours.dtype == theirs.dtype
        # Bits, so that a NaN equals itself and the sign of zero counts.
        kind = torch.int32 if theirs.is_floating_point() else theirs.dtype
        assert torch.equal(ours.contiguous().view(kind),
                           theirs.contiguous().view(kind))


def lists(targets):
    return [list(one) for one in targets]


def assert_same(build, batches, **options):
    stock = build('CenterHead', **copy.deepcopy(options))
    turbo = build('mmturbox.CenterHead', **copy.deepcopy(options))
    for batch in batches:
        assert_bitwise(
            lists(turbo.get_targets(batch)), lists(stock.get_targets(batch)))


@pytest.mark.parametrize('name', VARIANTS)
def test_targets_of_hard_batches_are_equal_bit_for_bit(build, name):
    batches = [[random_instances(count, 10 * seed + i)
                for i, count in enumerate((30, 0, 45))]
               for seed in range(6)]
    assert_same(build, batches, train_cfg=VARIANTS[name])


def test_other_orders_of_classes_and_tasks(build):
    tasks = [
        dict(num_class=3, class_names=['a', 'b', 'c']),
        dict(num_class=1, class_names=['d']),
        dict(num_class=6, class_names=list('efghij')),
    ]
    assert_same(build, [[random_instances(60, seed)] for seed in range(4)],
                tasks=tasks)


def test_sizes_without_logarithm(build):
    assert_same(build, [[random_instances(40, seed)] for seed in range(4)],
                norm_bbox=False)


def test_batches_without_boxes(build):
    assert_same(build, [[random_instances(0, 0), random_instances(0, 1)]])


def test_batches_of_ignored_boxes_only(build):
    one = random_instances(8, 3)
    one.labels_3d[:] = -1
    assert_same(build, [[one, random_instances(0, 1)]])


def test_boxes_without_velocity_are_refused(build):
    from mmdet3d.structures import LiDARInstance3DBoxes
    head = build('mmturbox.CenterHead')
    boxes = InstanceData(
        bboxes_3d=LiDARInstance3DBoxes(torch.ones(2, 7)),
        labels_3d=torch.zeros(2).long())
    with pytest.raises(ValueError, match=r'\(n, 9\), got \(n, 7\)'):
        head.get_targets([boxes])


def test_camera_boxes_are_refused(build):
    from mmdet3d.structures import CameraInstance3DBoxes
    head = build('mmturbox.CenterHead')
    boxes = InstanceData(
        bboxes_3d=CameraInstance3DBoxes(torch.ones(2, 9), box_dim=9),
        labels_3d=torch.zeros(2).long())
    with pytest.raises(ValueError, match='CameraInstance3DBoxes'):
        head.get_targets([boxes])
