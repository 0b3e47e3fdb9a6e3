"""Pass: sparse_conv."""

import re
from typing import Any

from mmturbox.registry import PASSES

from .base import Declined, Environment, Set, as_dict
from .operators import OperatorPass

# Types of mmdet3d, its projects and OpenPCDet's ports that are made of
# sparse convolutions.
_ENCODERS = re.compile(r'Sparse\w*(Encoder|UNet|Conv\w*)$|MinkUNet|SPVCNN|'
                       r'Asymm3DSpconv|VoxelResBackBone|VoxelNeXt|SubMConv')


def _types(node: Any):
    if isinstance(node, dict):
        kind = node.get('type')
        yield kind if isinstance(kind, str) else getattr(kind, '__name__', '')
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for child in node:
            yield from _types(child)


@PASSES.register_module()
class SparseConv(OperatorPass):
    """Sparse layers with shared rulebooks and fused normalization."""
    name = 'sparse_conv'
    parity = 'close'
    changes = (*OperatorPass.changes, 'operator_modules.sparse_conv')

    def plan(self, cfg: Any, env: Environment) -> list[Set] | Declined:
        found = super().plan(cfg, env)
        edits = [] if isinstance(found, Declined) else found
        if isinstance(found, Declined) and 'no native' in found.reason:
            return found
        names = [name for name in _types(as_dict(cfg.get('model') or {}))
                 if name and _ENCODERS.search(name)]
        if not names:
            return edits or Declined('the model has no sparse encoder, and '
                                     + found.reason)
        return [*edits, Set('operator_modules.sparse_conv', True)]
