"""One small synthetic set and one devkit object for all tests here."""

import numpy as np
import pytest

from mmturbox.datasets.synthetic import create_synthetic_nuscenes
from mmturbox.datasets.synthetic.scene import Contents
from mmturbox.datasets.synthetic.tables import VERSION


@pytest.fixture(scope='session')
def synthetic_root(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'synthetic-nuscenes'
    assert create_synthetic_nuscenes(
        root, 2, 3, contents=Contents(image_size=(400, 225)))
    return root


@pytest.fixture(scope='session')
def occupancy_root(tmp_path_factory):
    """Larger images, on which painted lines can be told, and voxels."""
    root = tmp_path_factory.mktemp('data') / 'synthetic-occupancy'
    assert create_synthetic_nuscenes(
        root, 2, 2, contents=Contents(image_size=(800, 450), occupancy=True))
    return root


@pytest.fixture(scope='session')
def nusc(synthetic_root):
    from nuscenes.nuscenes import NuScenes
    return NuScenes(VERSION, str(synthetic_root), verbose=False)


@pytest.fixture(scope='session')
def argoverse2_root(tmp_path_factory):
    """One scenario each of train, val and test."""
    from mmturbox.datasets.synthetic.argoverse2 import (
        create_synthetic_argoverse2,
    )
    root = tmp_path_factory.mktemp('data') / 'synthetic-argoverse2'
    assert create_synthetic_argoverse2(root, num_scenarios=3)
    return root


@pytest.fixture(scope='session')
def city():
    from mmturbox.datasets.synthetic.city import City
    return City.generate(np.random.default_rng((0, 99)))


@pytest.fixture(scope='session')
def ground(city):
    """What lies where in the city."""
    from mmturbox.datasets.synthetic.ground_classes import Ground
    return Ground.of(city)
