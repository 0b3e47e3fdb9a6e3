"""Argoverse 2 motion-forecasting scenarios of the synthetic world.

A scenario is one world for 11 seconds, seen from its ego vehicle: everybody
within ``RANGE`` has a track while they are, but only some of those who stand
or walk do. Positions follow the lanes of the map exactly; velocities and
headings are those of the motion.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np

from ..argoverse2.infos import write_infos
from ..argoverse2.tracks import (
    AV,
    FOCAL,
    FRAGMENT,
    NUM_OBSERVED,
    NUM_STEPS,
    OBJECT_TYPES,
    SCORED,
    STEP_SECONDS,
    UNSCORED,
    Tracks,
)
from ..shards import Progress, run_shards
from .argoverse2_map import city_map, local_map
from .kinds import KIND_INDEX, KINDS
from .output import write_once
from .population import EGO_AHEAD
from .scene import surroundings
from .tables import token
from .world import WORLD_VERSION, World

CITY = 'synthetic'
# Farther actors have no track; metres from the ego vehicle. With the shares
# below there are about as many tracks as in official scenarios.
RANGE = 70.
# Official tracks last at least this many steps.
MIN_STEPS = 10
# Shares of those who stand, and of those who walk, that have a track.
_STANDING, _WALKING = .15, .2
_EPOCH_NS = 315_966_000_000_000_000
_STEP_NS = 100_000_000
# Object types of what goes and of what stands for good.
_TYPES = {
    'bus': ('bus', 'bus'),
    'motorcycle': ('motorcyclist', 'static'),
    'bicycle': ('cyclist', 'riderless_bicycle'),
    'pedestrian': ('pedestrian', 'pedestrian'),
    'traffic_cone': ('construction', 'construction'),
    'barrier': ('static', 'static'),
}


@dataclass(frozen=True)
class ScenarioSpec:
    """What a scenario depends on.

    Attributes:
        split: ``'train'``, ``'val'`` or ``'test'``.
        index: place among all scenarios, seeds it together with ``seed``.
        seed: of the whole set.
    """
    split: str
    index: int
    seed: int

    @property
    def scenario_id(self) -> str:
        return str(UUID(token(self.seed, 'argoverse2', self.index)))


def split_sizes(num_scenarios: int) -> dict[str, int]:
    """Scenarios of each split: a fifth to validate, a tenth to test.

    Raises:
        ValueError: for fewer than one each.
    """
    if num_scenarios < 3:
        raise ValueError('need at least 3 scenarios, one for each of train, '
                         f'val and test, got {num_scenarios}')
    val, test = max(1, num_scenarios // 5), max(1, num_scenarios // 10)
    return dict(train=num_scenarios - val - test, val=val, test=test)


def create_synthetic_argoverse2(out: str | os.PathLike,
                                num_scenarios: int = 20,
                                seed: int = 0,
                                workers: int = 1,
                                overwrite: bool = False,
                                progress: Progress = lambda done, total: None
                                ) -> bool:
    """Write the set in the official layout, and its info files.

    Args:
        out: data root to create; appears whole or not at all.
        num_scenarios: of all splits together, at least 3.
        seed: same seed, same bytes; also that of the city.
        workers: processes; the result does not depend on it.
        overwrite: replace a synthetic set that has other parameters.
        progress: called with scenarios done and in all.

    Returns:
        False if ``out`` holds this very set already, else True.

    Raises:
        ValueError: on a parameter out of range, if ``out`` holds something
            else, or if there is no space or right to write.
    """
    sizes = split_sizes(num_scenarios)
    if seed < 0 or workers < 1:
        raise ValueError('need a seed >= 0 and a worker, got seed '
                         f'{seed}, workers {workers}')
    names = [name for name, size in sizes.items() for _ in range(size)]
    specs = [ScenarioSpec(name, i, seed) for i, name in enumerate(names)]
    parameters = dict(
        set='argoverse2',
        generator=WORLD_VERSION,
        scenarios=num_scenarios,
        seed=seed)

    return write_once(out, parameters, overwrite,
                      lambda root: _fill(root, specs, workers, progress))


def _fill(root: Path, specs: list[ScenarioSpec], workers: int,
          progress: Progress) -> None:
    whole_map = city_map(surroundings(specs[0].seed).city)
    folders = [root / spec.split / spec.scenario_id for spec in specs]
    run_shards(lambda i: write_scenario(folders[i], specs[i], whole_map),
               folders, [1] * len(specs), workers, progress)
    write_infos(root, workers=workers)


def write_scenario(folder: Path, spec: ScenarioSpec,
                   whole_map: dict) -> None:
    """Write the two files of a scenario.

    Args:
        folder: to create.
        whole_map: ``city_map`` of the city.
    """
    from av2.datasets.motion_forecasting.scenario_serialization import (
        serialize_argoverse_scenario_parquet,
    )

    # Keeps clear of the seeds of the scenes in nuScenes format.
    rng = np.random.default_rng((spec.seed, spec.index, 0xA2))
    world = World.generate(rng, surroundings(spec.seed),
                           (NUM_STEPS - 1) * STEP_SECONDS)
    tracks = make_tracks(world, spec, rng)
    # The map must not tell where the ego vehicle of a test scenario goes.
    way = tracks.position[tracks.av_index][tracks.valid[tracks.av_index]]
    folder.mkdir(parents=True)
    serialize_argoverse_scenario_parquet(
        folder / f'scenario_{spec.scenario_id}.parquet',
        _av2_scenario(tracks, spec))
    path = folder / f'log_map_archive_{spec.scenario_id}.json'
    path.write_text(json.dumps(local_map(whole_map, way)))


def make_tracks(world: World, spec: ScenarioSpec,
                rng: np.random.Generator) -> Tracks:
    """Tracks of a world's first 11 s; of its first 5 s in the test split."""
    position, heading, velocity = _states(world)
    moves = np.ptp(position, axis=1).max(-1) > 0
    apart = np.linalg.norm(position - position[-1], axis=-1)
    valid = (apart < RANGE) & _noticed(world, moves, rng)[:, None]
    valid[valid.sum(1) < MIN_STEPS] = False
    category = _choose(world, position, heading, valid, rng)
    _interrupt(valid, category, rng)
    if spec.split == 'test':
        valid[:, NUM_OBSERVED:] = False
    keep = np.nonzero(valid.any(1))[0]
    valid, category = valid[keep], category[keep]
    names = [str(10_000 + i) for i in keep[:-1]] + [AV]
    kinds = [KINDS[k].name for k in world.kind] + ['car']
    goes = np.append(world.goes, True)
    types = [
        _TYPES.get(kinds[i], ('vehicle', ) * 2)[0 if goes[i] else 1]
        for i in keep
    ]
    start = _EPOCH_NS + spec.index * NUM_STEPS * _STEP_NS
    return Tracks(
        ids=tuple(names),
        object_type=np.array([OBJECT_TYPES.index(name) for name in types]),
        category=category,
        valid=valid,
        observed=valid & (np.arange(NUM_STEPS) < NUM_OBSERVED),
        position=position[keep] * valid[..., None],
        heading=heading[keep] * valid,
        velocity=velocity[keep] * valid[..., None],
        av_index=len(keep) - 1,
        focal_index=int(np.argmax(category)),
        scenario_id=spec.scenario_id,
        city=CITY,
        timestamps=start + np.arange(NUM_STEPS) * _STEP_NS)


def _states(world: World) -> tuple[np.ndarray, ...]:
    """(N + 1, 110, ...) position, heading, velocity; the ego vehicle last."""
    times = np.arange(NUM_STEPS) * STEP_SECONDS
    actors, ego = world.actor_motion(times), world.ego_motion(times)
    heading = np.column_stack([actors.heading, ego.heading]).T
    speed = np.column_stack([actors.speed, ego.speed]).T[..., None]
    ahead = np.stack([np.cos(heading), np.sin(heading)], -1)
    velocity = speed * ahead
    position = np.concatenate([actors.xy, ego.xy[:, None]], 1)
    position = position.transpose(1, 0, 2)
    # From the rear axle to the box centre, which swings out in a turn.
    position[-1] += EGO_AHEAD * ahead[-1]
    left = np.stack([-ahead[-1, :, 1], ahead[-1, :, 0]], -1)
    velocity[-1] += EGO_AHEAD * (ego.speed * ego.curvature)[:, None] * left
    return position, (heading + np.pi) % (2 * np.pi) - np.pi, velocity


def _noticed(world: World, moves: np.ndarray,
             rng: np.random.Generator) -> np.ndarray:
    """(N + 1,) bool: who has a track at all."""
    walks = world.kind == KIND_INDEX['pedestrian']
    share = np.where(moves[:-1], np.where(walks, _WALKING, 1.), _STANDING)
    return np.append(rng.random(len(share)) < share, True)


def _choose(world: World, position: np.ndarray, heading: np.ndarray,
            valid: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(N + 1,) category; far ways and turns are scored more often."""
    whole = valid.all(1)
    category = np.where(whole, UNSCORED, FRAGMENT)
    moved = np.linalg.norm(np.diff(position, axis=1), axis=-1).sum(1)
    turned = np.abs(np.unwrap(heading)[:, -1] - heading[:, 0])
    interest = moved * (1 + turned) + 1e-6
    interest[:-1] *= np.where(world.kind == KIND_INDEX['pedestrian'], .2, 1.)
    interest *= whole
    interest[-1] = 0.
    chosen = rng.choice(
        len(interest),
        size=min(int(rng.integers(2, 4)), int((interest > 0).sum())),
        replace=False,
        p=interest / interest.sum())
    category[chosen] = SCORED
    category[chosen[0]] = FOCAL
    return category


def _interrupt(valid: np.ndarray, category: np.ndarray,
               rng: np.random.Generator) -> None:
    """Three tracks get a gap, and one appears late, in place."""
    may = np.isin(category, (FRAGMENT, UNSCORED)) & (valid.sum(1) > 60)
    may[-1] = False
    chosen = rng.permutation(np.nonzero(may)[0])[:4]
    for late in chosen[:1]:
        valid[late, :NUM_OBSERVED + int(rng.integers(1, 10))] = False
    for i in chosen[1:]:
        steps = np.nonzero(valid[i])[0]
        begin = int(rng.integers(5, len(steps) - 25))
        valid[i, steps[begin:begin + int(rng.integers(3, 16))]] = False
    category[chosen] = FRAGMENT


def _av2_scenario(tracks: Tracks, spec: ScenarioSpec):
    """As av2's ``ArgoverseScenario``."""
    from av2.datasets.motion_forecasting import data_schema as schema

    def states(i: int) -> list:
        return [
            schema.ObjectState(
                bool(tracks.observed[i, t]), int(t),
                tuple(tracks.position[i, t].tolist()),
                float(tracks.heading[i, t]),
                tuple(tracks.velocity[i, t].tolist()))
            for t in np.nonzero(tracks.valid[i])[0]
        ]

    return schema.ArgoverseScenario(
        scenario_id=tracks.scenario_id,
        timestamps_ns=tracks.timestamps,
        tracks=[
            schema.Track(name, states(i),
                         schema.ObjectType(OBJECT_TYPES[kind]),
                         schema.TrackCategory(category))
            for i, (name, kind, category) in enumerate(
                zip(tracks.ids, tracks.object_type.tolist(),
                    tracks.category.tolist(), strict=True))
        ],
        focal_track_id=tracks.ids[tracks.focal_index],
        city_name=CITY,
        map_id=spec.index,
        slice_id=tracks.scenario_id)
