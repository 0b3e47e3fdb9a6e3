"""A made-up city to drive in, in the official formats.

Read in this order. The city: ``paths`` (lines and arcs), ``city`` (streets,
junctions, lanes), ``buildings``. Who is in it: ``kinds``, ``routes``,
``traffic`` (how they move), ``population``, ``thinning``, ``world`` (where
everything is at a time). What sensors see: ``lidar``; ``cameras``,
``markings`` and ``texture`` (the ground), ``sheets`` and ``appearance`` (the
boxes), ``sight`` and ``owners`` (what hides what), ``backdrop``, ``render``.
What is recorded: ``annotations``, ``occupancy``, ``can_bus``,
``map_expansion``, ``tables`` (the official records), ``scene`` (one scene of
records and files), ``dataset`` (the set on disk). ``argoverse2``: scenarios
of the same world.
"""

from .dataset import MAX_SCENES, create_synthetic_nuscenes
from .scene import Contents

__all__ = ['MAX_SCENES', 'Contents', 'create_synthetic_nuscenes']
