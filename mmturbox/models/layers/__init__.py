"""Layers built from the operators; parameters named as in stock."""
