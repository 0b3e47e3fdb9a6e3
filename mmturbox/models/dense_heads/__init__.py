"""Twins of mmdet3d's dense heads."""
