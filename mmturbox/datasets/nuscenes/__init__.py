"""Real nuScenes (or a set in its format) to files that mmdet3d 1.x reads."""

from .convert import convert_nuscenes
from .gt_store import GroundTruthStore
from .infos import write_infos
from .records import RecordMaker

__all__ = [
    'GroundTruthStore', 'RecordMaker', 'convert_nuscenes', 'write_infos'
]
