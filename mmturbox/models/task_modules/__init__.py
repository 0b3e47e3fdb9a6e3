"""Targets and assigners for whole batches."""
