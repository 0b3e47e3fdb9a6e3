"""Transforms of the scope ``mmturbox``."""
