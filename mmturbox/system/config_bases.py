"""Config bases such as ``mmdet3d::...`` without ``pkg_resources``.

mmengine 0.10.7 finds installed packages through ``pkg_resources``, which
setuptools has dropped in version 82.
"""

import importlib.metadata
import importlib.util
import os
import sys

from .patches import Patches

_USERS = ('mmengine.utils.package_utils', 'mmengine.utils',
          'mmengine.config.config', 'mmengine.hub.hub')


def install(patches: Patches) -> str | None:
    """Replace the two look-ups; None where ``pkg_resources`` is there."""
    if importlib.util.find_spec('pkg_resources') is not None:
        return None
    import mmengine.config.config  # noqa: F401
    from mmengine.utils import package_utils
    if 'pkg_resources' not in package_utils.is_installed.__code__.co_names:
        return None
    for ours in (is_installed, get_installed_path):
        stock = getattr(package_utils, ours.__name__)
        for user in _USERS:
            module = sys.modules.get(user)
            if getattr(module, ours.__name__, None) is stock:
                patches.replace(module, ours.__name__, ours)
    return 'config bases "package::file" without pkg_resources'


def is_installed(package: str) -> bool:
    """Whether a distribution or an importable package has this name."""
    try:
        importlib.metadata.distribution(package)
        return True
    except importlib.metadata.PackageNotFoundError:
        spec = importlib.util.find_spec(package)
        return spec is not None and spec.origin is not None


def get_installed_path(package: str) -> str:
    """The folder of a package, named by itself or by its distribution.

    Raises:
        ModuleNotFoundError: nothing of this name is installed.
        RuntimeError: the package is a namespace package.
    """
    spec = importlib.util.find_spec(package) if package.isidentifier(
    ) else None
    if spec is None:
        spec = importlib.util.find_spec(_module_of(package))
    if spec.origin is None:
        raise RuntimeError(f'{package} is a namespace package: it has no one '
                           'folder that a config could be looked up in')
    return os.path.dirname(spec.origin)


def _module_of(distribution: str) -> str:
    """mmcv-lite -> mmcv."""
    for module, owners in importlib.metadata.packages_distributions().items():
        if distribution in owners and not module.startswith('_'):
            return module
    raise ModuleNotFoundError(
        f'{distribution} is not installed (pip install {distribution})',
        name=distribution)
