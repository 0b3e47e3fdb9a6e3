"""Twins of mmdet3d's data preprocessors."""
