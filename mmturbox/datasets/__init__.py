"""Datasets, their transforms and samplers, and the checks before training.

Nothing here imports mmdet3d or the nuScenes devkit before it is used.
"""

from .info_check import DataError, check_data_configs, check_info_file

__all__ = ['DataError', 'check_data_configs', 'check_info_file']
