"""Launching, the layer that makes stock run here, and looking at the machine.

Nothing is imported from here at package import.
"""
