"""Counting, stepping, comparing and reporting; what the tools stand on."""
