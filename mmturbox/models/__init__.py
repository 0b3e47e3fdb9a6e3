"""Models and their parts: fast twins of mmdet3d's and mmdet's, and layers.

The registry imports this package on the first look-up of a model component.
Twins are subclasses of mmdet3d's classes; where mmdet3d does not import, each
is a stand-in that says why when it is built.
"""

from importlib import import_module

from mmturbox.registry import MODELS

TWINS = {
    'CenterHead': 'dense_heads.center_head',
    'DCN': 'layers.deform_conv',
    'DCNv2': 'layers.deform_conv',
    'Det3DDataPreprocessor': 'data_preprocessors.det3d',
    'DynamicPillarFeatureNet': 'voxel_encoders.dynamic',
    'DynamicSimpleVFE': 'voxel_encoders.dynamic',
    'DynamicVFE': 'voxel_encoders.dynamic',
    'FocalLoss': 'losses.focal_loss',
    'GaussianFocalLoss': 'losses.gaussian_focal_loss',
    'HardSimpleVFE': 'voxel_encoders.hard_simple',
    'MultiScaleDeformableAttention': 'layers.ms_deform_attn',
    'PillarFeatureNet': 'voxel_encoders.pillar_encoder',
    'PointPillarsScatter': 'middle_encoders.pillars_scatter',
}
"""Name of each twin and the module that registers it."""


def _stand_in(name: str, error: Exception) -> type:

    def __init__(self, *args, **kwargs):
        raise ImportError(
            f'mmturbox.{name} extends a class of mmdet3d, which does not '
            f'import here: {error}. Install it with '
            '`pip install --no-deps mmdet3d==1.4.0`') from error

    return type(name, (), {'__init__': __init__, '__module__': __name__})


def _register() -> None:
    import_module(f'{__name__}.sparse')
    try:
        from mmturbox.ops import mmcv_ext
        mmcv_ext.install()
        import mmdet3d.models  # noqa: F401
    # mmdet3d asserts the versions of mmcv and mmdet that it works with.
    except (ImportError, AssertionError) as error:
        for name in TWINS:
            MODELS.register_module(name=name, module=_stand_in(name, error))
        return
    for module in TWINS.values():
        import_module(f'{__name__}.{module}')


_register()
