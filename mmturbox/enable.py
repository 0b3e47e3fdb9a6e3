"""The switch: ``custom_imports = dict(imports=['mmturbox.enable'])``.

Importing this module registers the components, installs the compatibility
layer (which lets stock run here, and makes nothing faster) and sets one seam:
``Runner.from_cfg`` builds a TurboRunner. ``MMTURBOX=0`` in the environment
keeps the run stock; :func:`undo` takes the seam away.
"""

from mmengine.runner import Runner

import mmturbox.register  # noqa: F401
from mmturbox.system import SEAM, compat


def install() -> None:
    """Set the seam; once, however often it is called."""
    compat.install()
    current = Runner.__dict__['from_cfg']
    if hasattr(current.__func__, SEAM):
        return

    def from_cfg(cls, cfg):
        # A user's own Runner subclass stays as it is, and TurboRunner must
        # not come back here.
        if cls is Runner:
            from mmturbox.passes.driver import switched_off
            if not switched_off():
                from mmturbox.runner import TurboRunner
                return TurboRunner.from_cfg(cfg)
        return current.__func__(cls, cfg)

    from_cfg.__doc__ = current.__func__.__doc__
    setattr(from_cfg, SEAM, current)
    Runner.from_cfg = classmethod(from_cfg)


def undo() -> None:
    """Give ``Runner.from_cfg`` back as it was."""
    original = getattr(Runner.__dict__['from_cfg'].__func__, SEAM, None)
    if original is not None:
        Runner.from_cfg = original


install()
