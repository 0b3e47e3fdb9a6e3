"""Samplers of the scope ``mmturbox``."""
