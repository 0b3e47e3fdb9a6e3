"""Leak fixtures for every test."""

from mmturbox.testing.leaks import *  # noqa: F403
