"""Add mmturbox's names to MMEngine's registries; change nothing else.

``mmcv._ext`` is provided where mmcv has none, since components that build on
mmcv.ops could not be imported otherwise. The components themselves are
imported by their registries on first use.
"""

from mmturbox import registry  # noqa: F401
from mmturbox.ops import mmcv_ext

mmcv_ext.install()
