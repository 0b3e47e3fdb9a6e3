"""Twins of mmdet3d's voxel encoders."""
