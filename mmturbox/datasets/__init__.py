"""Datasets, their transforms and samplers, and the checks before training.

Nothing here imports mmdet3d or the nuScenes devkit before it is used.
"""
