"""What passes share that swap a component for its fast twin."""

from collections.abc import Callable
from typing import Any

from .base import Declined, Set, find_types, lookup


def swap_types(
    cfg: Any,
    stock: str,
    why_not: Callable[[Any, tuple], str | None] = lambda cfg, path: None
) -> list[Set] | Declined:
    """Replace ``type`` of each ``stock`` component of the model.

    Args:
        cfg: the whole config.
        stock: ``'<package>.X'``, the package being mmdet3d, mmdet or
            mmcv; its twin is ``'mmturbox.X'``.
        why_not: gives, for the path of a component, why its twin cannot
            serve it, or None.

    Returns:
        The edits, or the reasons where there is nothing to swap.
    """
    package, _, name = stock.rpartition('.')
    paths = list(find_types(cfg, stock, under='model'))
    if not paths:
        return Declined(f'the model has no {name}')
    reasons = {
        path: _foreign(cfg, path, package, name) or why_not(cfg, path)
        for path in paths
    }
    edits = [
        Set((*path, 'type'), f'mmturbox.{name}')
        for path, reason in reasons.items() if reason is None
    ]
    return edits or Declined('; '.join(sorted(set(reasons.values()))))


def _foreign(cfg: Any, path: tuple, package: str, name: str) -> str | None:
    """Why the class that the run would build at ``path`` is not that of
    ``package``: another one may be registered under the same name."""
    kind, scope = lookup(cfg, (*path, 'type')), cfg.get('default_scope')
    if not isinstance(kind, str) or not scope:
        return None
    found = _resolve(kind, scope)
    module = getattr(found, '__module__', None)
    if module is None or module.startswith(f'{package}.'):
        return None
    return f"{name} is {module}'s own"


def _resolve(kind: str, scope: str) -> type | None:
    """The class that ``kind`` names under ``scope``, or None where that
    cannot be told."""
    from mmengine.registry import MODELS
    try:
        from mmturbox.ops import mmcv_ext
        mmcv_ext.install()
        import mmdet3d.models  # noqa: F401
        with MODELS.switch_scope_and_registry(scope) as registry:
            return registry.get(kind)
    # mmdet3d asserts the versions of mmcv and mmdet that it works with; the
    # registry raises RuntimeError or KeyError for an unknown name.
    except (ImportError, AssertionError, RuntimeError, KeyError):
        return None


def training_settings(cfg: Any, path: tuple) -> dict | None:
    """``train_cfg`` that the detector hands to the head at ``path``."""
    own = lookup(cfg, (*path, 'train_cfg'))
    if own:
        return own
    whole = lookup(cfg, (*path[:-1], 'train_cfg')) or {}
    # MVX detectors keep one part for each modality.
    part = str(path[-1]).partition('_')[0]
    return whole.get(part, whole) or None
