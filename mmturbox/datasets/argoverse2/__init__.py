"""Argoverse 2 motion forecasting: scenarios as arrays, and info files.

Read in this order: ``tracks`` and ``vector_map`` (the two files of a
scenario), ``scenario`` (both), ``infos`` (a whole data set). Neither av2 nor
pandas is needed, only pyarrow.
"""

from .infos import write_infos
from .ragged import Ragged
from .scenario import Scenario, read_scenario
from .tracks import (
    CATEGORIES,
    NUM_OBSERVED,
    NUM_STEPS,
    OBJECT_TYPES,
    Tracks,
    read_tracks,
)
from .vector_map import LANE_TYPES, MARK_TYPES, VectorMap, read_map

__all__ = [
    'CATEGORIES', 'LANE_TYPES', 'MARK_TYPES', 'NUM_OBSERVED', 'NUM_STEPS',
    'OBJECT_TYPES', 'Ragged', 'Scenario', 'Tracks', 'VectorMap', 'read_map',
    'read_scenario', 'read_tracks', 'write_infos'
]
