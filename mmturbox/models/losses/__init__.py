"""Twins of mmdet's losses."""
