"""Bilinear sampling pixel by pixel, for the tests of RoI pools."""

import math


def bilinear(plane, y, x):
    """The value of a (H, W) array at a place, as mmcv defines it."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    value = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            share = (1 - abs(y - row)) * (1 - abs(x - column))
            if share:
                value += share * float(plane[row, column])
    return value


def grid(size, bins, ratio):
    """Samples along a bin."""
    return ratio if ratio > 0 else max(math.ceil(size / bins), 0)


def mean(values):
    values = list(values)
    return sum(values) / max(len(values), 1)
