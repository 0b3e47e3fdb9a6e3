"""One synthetic set with small images for all tests here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mmturbox.datasets.synthetic import create_synthetic_nuscenes
from mmturbox.datasets.synthetic.scene import Contents
from mmturbox.datasets.synthetic.tables import VERSION

SCENES, FRAMES, IMAGE_SIZE = 2, 8, (400, 225)


@pytest.fixture(scope='session')
def official_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('official') / 'synthetic-nuscenes'
    assert create_synthetic_nuscenes(
        root, SCENES, FRAMES, contents=Contents(IMAGE_SIZE))
    return root


@pytest.fixture(scope='session')
def nusc(official_root):
    from nuscenes.nuscenes import NuScenes
    return NuScenes(VERSION, str(official_root), verbose=False)


@pytest.fixture(scope='session')
def split_tokens(nusc) -> Callable[[str], list[str]]:
    """Sample tokens of ``'mini_train'`` or ``'mini_val'``."""
    from nuscenes.utils.splits import create_splits_scenes
    scenes = create_splits_scenes()

    def tokens(split: str) -> list[str]:
        return [
            s['token'] for s in nusc.sample
            if nusc.get('scene', s['scene_token'])['name'] in scenes[split]
        ]

    return tokens
