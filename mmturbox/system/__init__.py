"""Launching, the layer that makes stock run here, and looking at the machine.

Nothing is imported from here at package import.
"""

SEAM = '_mmturbox_original'
"""The attribute that :mod:`mmturbox.enable` puts on ``Runner.from_cfg``."""
