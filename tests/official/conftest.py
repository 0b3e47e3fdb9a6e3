"""One synthetic set with small images for all tests here."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from mmturbox.datasets import synthetic
from mmturbox.datasets.synthetic.dataset import scene_names
from mmturbox.datasets.synthetic.geometry import rigid, yaw_quaternion
from mmturbox.datasets.synthetic.scene import (
    Contents,
    SceneSpec,
    surroundings,
)
from mmturbox.datasets.synthetic.tables import VERSION
from mmturbox.datasets.synthetic.world import World

SCENES, FRAMES, IMAGE_SIZE = 2, 8, (400, 225)


@pytest.fixture(scope='session')
def official_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('official') / 'synthetic-nuscenes'
    assert synthetic.create_synthetic_nuscenes(
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


@dataclass(frozen=True)
class Truth:
    """What the files of a scene were made from."""
    spec: SceneSpec

    @cached_property
    def world(self) -> World:
        return World.generate(
            self.spec.rng(0), surroundings(self.spec.seed),
            self.spec.duration)

    @cached_property
    def actor_of(self) -> dict[str, int]:
        """Instance token to index."""
        return {
            self.spec.token('instance', i): i
            for i in range(len(self.world.kind))
        }

    def ego2global(self, sample: int) -> np.ndarray:
        """(4, 4) at the key frame of that number."""
        position, yaw = self.world.ego_pose(sample / 2)
        return rigid(yaw_quaternion(yaw), position)

    def boxes(self, sample: int) -> np.ndarray:
        """(N + M, 7) actors and structures."""
        return np.concatenate(
            [self.world.actor_boxes(sample / 2), self.world.structures])


@pytest.fixture(scope='session')
def scene_truth() -> Callable[[int, int, tuple[int, int]], Truth]:
    """Makes that of a scene from its place, key frames and image size."""

    def make(index, frames, image_size):
        return Truth(
            SceneSpec(
                scene_names(SCENES)[index], index, frames, 0,
                Contents(image_size)))

    return make


@pytest.fixture(scope='session')
def truths(scene_truth) -> tuple[Truth, ...]:
    """Of the scenes of the set, in order."""
    return tuple(scene_truth(i, FRAMES, IMAGE_SIZE) for i in range(SCENES))


@pytest.fixture
def train():
    """Trains a config; its losses, and its metrics before and after."""

    def run(cfg):
        from mmturbox.runner import TurboRunner
        runner = TurboRunner.from_cfg(cfg)
        before = runner.test()
        runner.train()
        path, = Path(cfg.work_dir).glob('*/vis_data/scalars.json')
        rows = map(json.loads, path.read_text().splitlines())
        losses = [row['loss'] for row in rows if 'loss' in row]
        return losses, before, runner.test()

    return run
