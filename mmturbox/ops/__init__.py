"""The operators: public functions, their references, the mmcv provider."""

from ._library import MISSING, OPERATORS, load_native, native
from .points_in_boxes import points_in_boxes_all, points_in_boxes_part

load_native()

__all__ = [
    'MISSING', 'OPERATORS', 'native', 'points_in_boxes_all',
    'points_in_boxes_part'
]
