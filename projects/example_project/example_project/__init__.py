"""A template: what a project under ``projects/`` consists of."""

from .point_regressor import PointRegressor
from .random_points import RandomPoints

__all__ = ['PointRegressor', 'RandomPoints']
