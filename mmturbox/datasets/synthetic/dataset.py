"""The whole set on disk: all or nothing, and once only."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from ..info_check import DataError
from .ground_classes import Ground, write_map_mask
from .lidar import Lidar
from .map_expansion import write_map_expansion
from .output import write_once
from .scene import Contents, SceneSpec, generate_scene, surroundings
from .tables import (
    TRAIN_SCENES,
    VAL_SCENES,
    VERSION,
    Tables,
    merge_tables,
    shared_tables,
    write_tables,
)

MAX_SCENES = len(TRAIN_SCENES) + len(VAL_SCENES)
# Counts up when the same parameters would give other files.
GENERATOR_VERSION = 2

Progress = Callable[[int, int], None]


def scene_names(num_scenes: int) -> list[str]:
    """Official names: one scene in five, at least one, is for validation.

    Raises:
        ValueError: outside 2 to 10, what v1.0-mini can name.
    """
    if not 2 <= num_scenes <= MAX_SCENES:
        raise ValueError(
            f'number of scenes must be 2 to {MAX_SCENES}, got {num_scenes}: '
            f'{VERSION} has {len(TRAIN_SCENES)} names for training and '
            f'{len(VAL_SCENES)} for validation, and each split needs one; '
            'for more data use more frames a scene')
    num_val = 1 if num_scenes < MAX_SCENES - 1 else len(VAL_SCENES)
    return [*TRAIN_SCENES[:num_scenes - num_val], *VAL_SCENES[:num_val]]


def create_synthetic_nuscenes(out: str | os.PathLike,
                              num_scenes: int = 4,
                              num_frames: int = 10,
                              seed: int = 0,
                              workers: int = 1,
                              overwrite: bool = False,
                              contents: Contents | None = None,
                              progress: Progress = lambda done, total: None
                              ) -> bool:
    """Write the set and its mmdet3d info files.

    The set is built in a sibling folder and renamed at the end, so ``out``
    never holds half of it.

    Args:
        out: data root to create.
        num_scenes: 2 to 10.
        num_frames: key frames (samples) a scene, at 2 Hz.
        seed: same seed, same bytes.
        workers: processes; the result does not depend on it.
        overwrite: replace a synthetic set that has other parameters.
        contents: which sensors and labels; six cameras at full size by
            default.
        progress: called with LiDAR frames done and in all.

    Returns:
        False if ``out`` holds this very set already, else True.

    Raises:
        ValueError: on a parameter out of range, or if ``out`` holds
            something else.
    """
    names = scene_names(num_scenes)
    if num_frames < 2 or seed < 0 or workers < 1:
        raise ValueError(
            'need at least 2 frames a scene (for velocities), a seed >= 0 '
            f'and a worker, got frames {num_frames}, seed {seed}, workers '
            f'{workers}')
    contents = contents or Contents()
    if contents.image_size and min(contents.image_size) < 16:
        raise ValueError('images must be at least 16 pixels wide and high, '
                         f'got {contents.image_size}')
    specs = [
        SceneSpec(name, i, num_frames, seed, contents)
        for i, name in enumerate(names)
    ]
    # As JSON gives them back.
    parameters = json.loads(
        json.dumps(
            dict(
                generator=GENERATOR_VERSION,
                scenes=num_scenes,
                frames=num_frames,
                seed=seed,
                **asdict(contents))))
    return write_once(
        out, parameters, overwrite,
        lambda root: _fill(root, specs, workers, progress))


def _fill(root: Path, specs: list[SceneSpec], workers: int,
          progress: Progress) -> None:
    from nuscenes.nuscenes import NuScenes

    from ..nuscenes import write_infos
    total = sum(spec.num_frames for spec in specs)
    tables = _scenes(root, specs, workers, progress, total)
    log_tokens = [row['token'] for rows in tables for row in rows['log']]
    channels = [(Lidar.channel, 'lidar')] + [
        (camera.channel, 'camera') for camera in specs[0].contents.cameras
    ]
    shared = shared_tables(channels, log_tokens)
    write_tables(root, merge_tables([shared, *tables]))
    city = surroundings(specs[0].seed).city
    write_map_expansion(root, city)
    write_map_mask(root / shared['map'][0]['filename'], Ground.of(city))
    write_infos(
        NuScenes(VERSION, str(root), verbose=False), root, workers=workers)


def _scenes(root: Path, specs: list[SceneSpec], workers: int,
            progress: Progress, total: int) -> list[Tables]:
    done = 0

    def advance(frames: int = 1) -> None:
        nonlocal done
        done += frames
        progress(done, total)

    if workers == 1:
        return [
            generate_scene(root, spec, on_frame=advance) for spec in specs
        ]
    # A forked process inherits OpenCV's pool without its threads, and hangs.
    tables = []
    try:
        with ProcessPoolExecutor(
                min(workers, len(specs)),
                mp_context=get_context('spawn'),
                initializer=_one_thread) as pool:
            make = partial(generate_scene, root)
            for spec, rows in zip(specs, pool.map(make, specs), strict=True):
                tables.append(rows)
                advance(spec.num_frames)
    except BrokenProcessPool as error:
        raise DataError(
            'a worker process was killed, most often for want of memory. Run '
            'the same command again with fewer --workers') from error
    return tables


def _one_thread() -> None:
    """Processes share the cores, so that each needs one thread."""
    import cv2
    cv2.setNumThreads(1)
