"""Twins of the simple and dynamic voxel encoders against stock."""

import pytest
import torch

from mmturbox.testing.center_point import import_mmdet3d

RANGE = [-10.0, -8.0, -2.0, 10.0, 8.0, 2.0]
SIZE = [0.5, 0.5, 1.0]
VFE = dict(in_channels=4, feat_channels=[8, 6], with_cluster_center=True,
           with_voxel_center=True, voxel_size=SIZE, point_cloud_range=RANGE,
           norm_cfg=dict(type='BN1d'))
PILLARS = dict(in_channels=4, feat_channels=(8, ),
               voxel_size=[0.5, 0.5, 4.0], point_cloud_range=RANGE,
               norm_cfg=dict(type='BN1d'))
SIMPLE = dict(voxel_size=SIZE, point_cloud_range=RANGE)


@pytest.fixture(scope='module')
def build():
    import_mmdet3d()
    from mmdet3d.registry import MODELS

    def build(name, **options):
        torch.manual_seed(0)
        return MODELS.build(dict(type=name, **options))

    return build


def make_batch(counts=(400, 300), flat=False, seed=0):
    """Points and their voxels, some out of range."""
    from mmturbox.ops import dynamic_voxelize
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(sum(counts), 4, generator=generator)
    points[:, :3] *= torch.tensor([3, 3, 0.6])
    size = [0.5, 0.5, 4.0] if flat else SIZE
    sample = torch.repeat_interleave(
        torch.arange(len(counts)), torch.tensor(counts))[:, None]
    coors = dynamic_voxelize(points, size, RANGE)
    inside = coors[:, 0] >= 0
    return points[inside], torch.cat((sample, coors), 1).int()[inside]


@pytest.mark.parametrize('name, options', [('DynamicSimpleVFE', SIMPLE),
                                           ('DynamicVFE', VFE),
                                           ('DynamicPillarFeatureNet',
                                            PILLARS)])
def test_dynamic_encoders_equal_stock_forward_and_backward(
        build, name, options):
    stock, turbo = build(name, **options), build(f'mmturbox.{name}',
                                                 **options)
    turbo.load_state_dict(stock.state_dict())
    points, coors = make_batch(flat=name == 'DynamicPillarFeatureNet')
    results = []
    for model in (stock, turbo):
        x = points.clone().requires_grad_()
        feats, voxels = model(x, coors)
        if feats.requires_grad:
            feats.square().sum().backward()
        results.append((feats, voxels, [p.grad for p in model.parameters()],
                        x.grad))
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(results[1][1], results[0][1])
    stock.load_state_dict(turbo.state_dict())


def test_voxels_are_looked_for_once_until_coors_change(build, monkeypatch):
    from mmturbox.models.voxel_encoders import dynamic
    calls = []

    def counting(coors):
        calls.append(len(coors))
        return search(coors)

    search = dynamic.voxel_groups
    monkeypatch.setattr(dynamic, 'voxel_groups', counting)
    model = build('mmturbox.DynamicVFE', **VFE)
    points, coors = make_batch()
    model(points, coors)
    assert len(calls) == 1
    # A tensor made in inference mode does not tell whether it was changed.
    with torch.inference_mode():
        model(points, coors.clone())
    assert len(calls) > 2
    calls.clear()
    coors[:, 1] += 1
    moved = dynamic.groups_of(coors)
    assert len(calls) == 1 and int(moved.coors[:, 1].min()) >= 1


def test_means_from_the_preprocessor_equal_grouped_points(build):
    layer = dict(max_num_points=4, max_voxels=(300, 300), voxel_size=SIZE,
                 point_cloud_range=RANGE)
    options = dict(voxel=True, voxel_layer=layer)
    grouped = build('mmturbox.Det3DDataPreprocessor', **options)
    means = build('mmturbox.Det3DDataPreprocessor', mean_voxels=True,
                  **options)
    encoder = build('mmturbox.HardSimpleVFE', num_features=3)
    points = [make_batch(seed=s)[0] for s in (1, 2)]
    a, b = (p.voxelize(points, None) for p in (grouped, means))
    assert b['voxels'].dim() == 2
    for key in ('coors', 'num_points', 'voxel_centers'):
        assert torch.equal(a[key], b[key])
    outputs = [encoder(v['voxels'], v['num_points'], v['coors'])
               for v in (a, b)]
    assert outputs[1].shape[1] == 3 and torch.equal(*outputs)
    dynamic = build('mmturbox.Det3DDataPreprocessor', voxel=True,
                    voxel_type='dynamic', mean_voxels=True,
                    voxel_layer=layer | dict(max_num_points=-1,
                                             max_voxels=(-1, -1)))
    with pytest.raises(ValueError, match='mean_voxels'):
        dynamic.voxelize(points, None)
