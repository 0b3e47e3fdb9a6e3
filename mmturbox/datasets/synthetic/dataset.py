"""The whole set on disk: all or nothing, and once only."""

import json
import os
import pickle
from dataclasses import asdict
from pathlib import Path

from ..shards import Progress, run_shards
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
from .world import WORLD_VERSION

MAX_SCENES = len(TRAIN_SCENES) + len(VAL_SCENES)
# As many as official scenes have.
MAX_FRAMES = 40


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
            'for more data use more frames a scene, or other seeds')
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
        num_frames: key frames (samples) a scene, at 2 Hz, 2 to 40.
        seed: same seed, same bytes.
        workers: processes, one a scene at most; the result does not depend
            on it.
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
    if not 2 <= num_frames <= MAX_FRAMES or seed < 0 or workers < 1:
        raise ValueError(
            f'need 2 (for velocities) to {MAX_FRAMES} frames a scene, a seed '
            f'>= 0 and a worker, got frames {num_frames}, seed {seed}, '
            f'workers {workers}')
    contents = contents or Contents()
    specs = [
        SceneSpec(name, i, num_frames, seed, contents)
        for i, name in enumerate(names)
    ]
    # As JSON gives them back.
    parameters = json.loads(
        json.dumps(
            dict(
                generator=WORLD_VERSION,
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
    if workers > 1:
        return _forked_scenes(root, specs, workers, progress)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    progress(done, total)
    return [generate_scene(root, spec, advance) for spec in specs]


def _forked_scenes(root: Path, specs: list[SceneSpec], workers: int,
                   progress: Progress) -> list[Tables]:
    import cv2
    # Made once for all, and shared.
    surroundings(specs[0].seed)
    records = [root / f'{spec.name}.pkl' for spec in specs]

    def make(i: int) -> None:
        records[i].write_bytes(pickle.dumps(generate_scene(root, specs[i])))

    # A forked process inherits OpenCV's pool without its threads, and hangs.
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        run_shards(make, records, [spec.num_frames for spec in specs],
                   workers, progress)
    finally:
        cv2.setNumThreads(threads)
    tables = [pickle.loads(path.read_bytes()) for path in records]
    for path in records:
        path.unlink()
    return tables
