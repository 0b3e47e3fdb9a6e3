"""A made-up driving set in the official nuScenes table format.

Read in this order: ``kinds`` (what there is), ``world`` (where everything is
at a time), ``lidar`` (what the sensor returns), ``tables`` (the official
records), ``scene`` (one scene of records and files), ``dataset`` (the set on
disk).
"""

from .dataset import MAX_SCENES, create_synthetic_nuscenes

__all__ = ['MAX_SCENES', 'create_synthetic_nuscenes']
