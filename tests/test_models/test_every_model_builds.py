"""Every registered model component can be built by its name."""

import pytest

from mmturbox.ops import mmcv_ext

mmcv_ext.install()
pytest.importorskip('mmdet3d.models')

from mmengine.registry import MODELS as ROOT  # noqa: E402

from mmturbox.registry import MODELS  # noqa: E402

RANGE = [0., 0., -1., 8., 8., 3.]
SIZE = [1., 1., 4.]
PILLARS = dict(
    in_channels=4, feat_channels=[8], voxel_size=SIZE,
    point_cloud_range=RANGE)
CONV = dict(in_channels=4, out_channels=4, kernel_size=3)
INVERSE = dict(CONV, indice_key='down')
ARGUMENTS = {
    'DCN': CONV,
    'DCNv2': CONV,
    'Det3DDataPreprocessor': dict(),
    'DynamicPillarFeatureNet': PILLARS,
    'DynamicSimpleVFE': dict(voxel_size=SIZE, point_cloud_range=RANGE),
    'DynamicVFE': PILLARS,
    'FocalLoss': dict(),
    'GaussianFocalLoss': dict(),
    'HardSimpleVFE': dict(),
    'MultiScaleDeformableAttention': dict(),
    'PillarFeatureNet': PILLARS,
    'PointPillarsScatter': dict(in_channels=4, output_shape=[8, 8]),
    'SparseConv2d': CONV,
    'SparseConv3d': CONV,
    'SparseConvTranspose2d': CONV,
    'SparseConvTranspose3d': CONV,
    'SparseInverseConv2d': INVERSE,
    'SparseInverseConv3d': INVERSE,
    'SparseMaxPool2d': dict(kernel_size=2),
    'SparseMaxPool3d': dict(kernel_size=2),
    'SubMConv2d': CONV,
    'SubMConv3d': CONV,
}


def registered():
    MODELS.import_from_location()
    # CenterHead is built in its own tests, with a whole detector's config;
    # toy components belong to the tests.
    return {
        name for name, kind in MODELS.module_dict.items()
        if not kind.__module__.startswith('mmturbox.testing')
        and not name.startswith(('Toy', 'FastToy'))
    } - {'CenterHead'}


def test_the_list_is_complete():
    assert registered() == set(ARGUMENTS)


@pytest.mark.parametrize('name', ARGUMENTS)
def test_the_name_builds(name):
    part = ROOT.build(dict(type=f'mmturbox.{name}', **ARGUMENTS[name]))
    assert type(part).__module__.startswith('mmturbox.')
