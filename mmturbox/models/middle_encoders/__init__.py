"""Twins of mmdet3d's middle encoders."""
