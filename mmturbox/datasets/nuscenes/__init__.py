"""Real nuScenes (or a set in its format) to files that mmdet3d 1.x reads."""

from .infos import write_infos
from .records import RecordMaker

__all__ = ['RecordMaker', 'write_infos']
