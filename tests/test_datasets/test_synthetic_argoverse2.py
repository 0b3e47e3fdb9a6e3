"""Synthetic scenarios are official data and can be learned from."""

import hashlib

import numpy as np
import pytest
from av2.datasets.motion_forecasting.eval import metrics
from av2.datasets.motion_forecasting.eval.submission import (
    ChallengeSubmission,
)
from av2.map.map_api import ArgoverseStaticMap, DrivableAreaMapLayer

from mmturbox.datasets.argoverse2 import (
    LANE_TYPES,
    OBJECT_TYPES,
    read_scenario,
)
from mmturbox.datasets.argoverse2.scenario import scenario_files
from mmturbox.datasets.argoverse2.tracks import FOCAL, FRAGMENT, SCORED
from mmturbox.datasets.synthetic import argoverse2 as module
from mmturbox.datasets.synthetic import argoverse2_map as module_map
from mmturbox.datasets.synthetic.argoverse2 import (
    ScenarioSpec,
    create_synthetic_argoverse2,
    split_sizes,
    write_scenario,
)
from mmturbox.datasets.synthetic.argoverse2_map import city_map
from mmturbox.datasets.synthetic.scene import surroundings


@pytest.fixture(scope='module')
def scenarios(argoverse2_root):
    """By split."""
    return {
        split: read_scenario(next((argoverse2_root / split).iterdir()))
        for split in ('train', 'val', 'test')
    }


@pytest.fixture(params=['train', 'val', 'test'])
def scenario(scenarios, request):
    return scenarios[request.param]


def is_kind(tracks, *names):
    return np.isin(tracks.object_type, [OBJECT_TYPES.index(n) for n in names])


def first_and_last(valid):
    steps = np.nonzero(valid)[0]
    return steps[0], steps[-1]


def off_lines(points, lines):
    """(P,) distance of points to the nearest of some polylines."""
    begin = np.concatenate([line[:-1, :2] for line in lines])
    along = np.concatenate([np.diff(line[:, :2], axis=0) for line in lines])
    share = ((points[:, None] - begin) * along).sum(-1) / (along**2).sum(-1)
    foot = begin + share.clip(0, 1)[..., None] * along
    return np.linalg.norm(foot - points[:, None], axis=-1).min(1)


@pytest.mark.parametrize('split', ['train', 'val'])
def test_each_kind_of_track_is_there(scenarios, split):
    tracks = scenarios[split].tracks
    assert tracks.ids.count('AV') == 1
    assert (tracks.category == FOCAL).sum() == 1
    assert tracks.category[tracks.focal_index] == FOCAL
    assert 1 <= (tracks.category == SCORED).sum() <= 2
    assert tracks.valid[tracks.category != FRAGMENT].all()
    assert tracks.valid[tracks.av_index].all()
    ends = [first_and_last(valid) for valid in tracks.valid]
    gaps = [last - begin + 1 > valid.sum()
            for (begin, last), valid in zip(ends, tracks.valid, strict=True)]
    assert sum(gaps) >= 3
    assert any(begin > 50 for begin, _ in ends)
    focal = tracks.position[tracks.focal_index]
    assert np.linalg.norm(np.diff(focal, axis=0), axis=1).sum() > 2.


def test_future_of_the_test_split_is_withheld(scenarios):
    tracks = scenarios['test'].tracks
    assert not tracks.valid[:, 50:].any()
    assert tracks.valid[:, :50].any(1).all()
    assert tracks.valid[tracks.focal_index, :50].all()
    assert tracks.valid[tracks.av_index, :50].all()


def test_velocity_and_heading_fit_the_positions(scenario):
    tracks = scenario.tracks
    valid = tracks.valid
    inner = valid[:, 2:] & valid[:, 1:-1] & valid[:, :-2]
    moved = (tracks.position[:, 2:] - tracks.position[:, :-2]) / .2
    gap = np.linalg.norm(moved - tracks.velocity[:, 1:-1], axis=-1)
    # The hardest braking, 8 m/s^2, may begin between two steps.
    assert gap[inner].max() < .5
    assert np.median(gap[inner]) < .02
    speed = np.linalg.norm(moved, axis=-1)
    assert speed.max(where=inner, initial=0.) > 5.
    course = np.arctan2(moved[..., 1], moved[..., 0])
    turn = (course - tracks.heading[:, 1:-1] + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(turn)[inner & (speed > 1.)].max() < .15
    assert np.abs(tracks.heading).max() <= np.pi


def test_traffic_follows_the_centre_lines(scenario):
    tracks, local_map = scenario.tracks, scenario.map
    lines = [local_map.centerline[i] for i in range(len(local_map.lane_id))]
    speed = np.linalg.norm(tracks.velocity, axis=-1)
    checked = 0
    for names, kind in ((('vehicle', 'bus'), 'VEHICLE'),
                        (('cyclist', ), 'BIKE')):
        go = is_kind(tracks, *names)[:, None] & (speed > 1.) & tracks.valid
        # Its box centre is ahead of what follows the line.
        go[tracks.av_index] = False
        allowed = [
            line for line, code in zip(lines, local_map.lane_type, strict=True)
            if LANE_TYPES[code] == kind
        ]
        points = tracks.position[go]
        checked += len(points)
        if len(points):
            assert off_lines(points, allowed).max() < .2
            headings = tracks.heading[go]
            ahead = np.stack([np.cos(headings), np.sin(headings)], 1)
            assert off_lines(points + ahead, allowed).max() < .3
    assert checked > 100


def test_lane_graph_is_consistent(scenario):
    m = scenario.map
    rows = {int(lane): i for i, lane in enumerate(m.lane_id)}
    outside, edges = 0, 0
    for lane, i in rows.items():
        for follower in m.successors[i].tolist():
            if follower not in rows:
                outside += 1
                continue
            edges += 1
            j = rows[follower]
            assert lane in m.predecessors[j]
            for line in (m.centerline, m.left_boundary, m.right_boundary):
                np.testing.assert_allclose(
                    line[i][-1], line[j][0], atol=.03)
        for mine, theirs in ((m.left_neighbor, m.right_neighbor),
                             (m.right_neighbor, m.left_neighbor)):
            if mine[i] in rows:
                assert theirs[rows[mine[i]]] == lane
    assert edges > 20
    assert outside > 0


def test_lanes_are_those_of_the_city_of_the_nuscenes_set(scenario):
    starts = [lane.path.start[:2] for lane in surroundings(0).city.lanes]
    m = scenario.map
    ours = [
        m.centerline[i][0, :2] for i, kind in enumerate(m.lane_type)
        if LANE_TYPES[kind] == 'VEHICLE'
    ]
    apart = np.linalg.norm(
        np.array(starts)[:, None] - np.array(ours), axis=-1)
    assert apart.min(0).max() < .01


def test_shared_boundaries_of_neighbours_coincide(scenario):
    m = scenario.map
    rows = {int(lane): i for i, lane in enumerate(m.lane_id)}
    checked = 0
    for i, other in enumerate(m.right_neighbor):
        if other in rows:
            left = m.left_boundary[rows[other]]
            assert off_lines(left[:, :2], [m.right_boundary[i]]).max() < .1
            checked += 1
    assert checked > 5


def test_lines_have_no_points_twice_in_a_row(scenario):
    m = scenario.map
    for lines in (m.centerline, m.left_boundary, m.right_boundary, m.areas):
        for i in range(len(lines)):
            steps = np.linalg.norm(np.diff(lines[i], axis=0), axis=1)
            assert len(steps) >= 1 and steps.min() > 0
    assert len(m.area_id) >= 1
    assert m.crossing_edges.shape[1:] == (2, 2, 3)
    ways = np.diff(m.crossing_edges, axis=2)[:, :, 0]
    lengths = np.linalg.norm(ways, axis=-1)
    assert len(ways) > 0
    assert (ways[:, 0] * ways[:, 1]).sum(-1).min() > 0
    np.testing.assert_allclose(lengths[:, 0], lengths[:, 1], atol=.05)


def test_av2_finds_the_traffic_on_its_drivable_area(argoverse2_root):
    folder, = (argoverse2_root / 'train').iterdir()
    _, path = scenario_files(folder)
    static_map = ArgoverseStaticMap.from_json(path)
    tracks = read_scenario(folder).tracks
    layer = DrivableAreaMapLayer.from_vector_data(
        static_map.get_scenario_vector_drivable_areas())
    go = is_kind(tracks, 'vehicle', 'bus', 'cyclist')[:, None] & tracks.valid
    inside = layer.get_raster_values_at_coords(
        tracks.position[go], fill_value=0)
    assert inside.all()
    here = np.append(tracks.position[tracks.av_index, 49], 0.)
    near = static_map.get_nearby_lane_segments(here, 5.)
    assert near
    for lane in near:
        centre = static_map.get_lane_segment_centerline(lane.id)
        assert off_lines(
            centre[1:-1, :2], [lane.left_lane_boundary.xyz]).max() < 3.6
    for crossing in static_map.get_scenario_ped_crossings():
        assert crossing.polygon.shape == (5, 3)


def test_perfect_predictions_are_accepted_and_score_zero(
        scenarios, tmp_path):
    predictions = {}
    for split in ('train', 'val'):
        tracks = scenarios[split].tracks
        truth = tracks.position[tracks.focal_index, 50:]
        others = truth + np.arange(1., 6.)[:, None, None]
        predictions[tracks.scenario_id] = (np.array([.5, *[.1] * 5]), {
            tracks.ids[tracks.focal_index]:
            np.concatenate([truth[None], others])
        })
    ChallengeSubmission(predictions).to_parquet(tmp_path / 'x.parquet')
    read = ChallengeSubmission.from_parquet(tmp_path / 'x.parquet')
    for split in ('train', 'val'):
        tracks = scenarios[split].tracks
        _, by_track = read.predictions[tracks.scenario_id]
        guess = by_track[tracks.ids[tracks.focal_index]]
        truth = tracks.position[tracks.focal_index, 50:]
        assert metrics.compute_ade(guess, truth).min() == 0.
        assert metrics.compute_fde(guess, truth).min() == 0.
        assert not metrics.compute_is_missed_prediction(guess, truth).all()


def test_four_lesser_tracks_are_interrupted():
    valid = np.ones((12, 110), dtype=bool)
    category = np.full(12, module.UNSCORED)
    category[:3] = FOCAL, SCORED, SCORED
    module._interrupt(valid, category, np.random.default_rng(0))
    hit = ~valid.all(1)
    assert not hit[[0, 1, 2, 11]].any()
    assert hit.sum() == 4 and (category[hit] == FRAGMENT).all()
    assert (category[~hit] != FRAGMENT).all()
    late = ~valid[:, :51].any(1)
    assert late.sum() == 1
    assert (np.diff(valid[hit & ~late], axis=1).sum(1) == 2).all()
    assert valid[late, -1].all()


def test_points_that_round_to_the_same_are_written_once():
    xy = np.array([[0., 0.], [.001, 0.], [1., 0.], [1.004, .001], [0., 0.]])
    assert module_map._points(xy) == [
        dict(x=0., y=0., z=0.),
        dict(x=1., y=0., z=0.),
        dict(x=0., y=0., z=0.)
    ]


def digest(root) -> dict:
    return {
        str(path.relative_to(root)): hashlib.md5(
            path.read_bytes()).hexdigest()
        for path in sorted(root.rglob('*')) if path.is_file()
    }


def test_same_seed_gives_same_bytes_for_any_number_of_workers(
        argoverse2_root, tmp_path):
    steps = []
    assert create_synthetic_argoverse2(
        tmp_path / 'set', 3, workers=2,
        progress=lambda done, total: steps.append((done, total)))
    assert digest(tmp_path / 'set') == digest(argoverse2_root)
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_second_run_does_nothing_and_other_parameters_are_refused(
        argoverse2_root):
    before = digest(argoverse2_root)
    assert not create_synthetic_argoverse2(argoverse2_root, 3)
    with pytest.raises(ValueError, match='other parameters'):
        create_synthetic_argoverse2(argoverse2_root, 3, seed=1)
    assert digest(argoverse2_root) == before


def test_another_seed_gives_another_city_and_scenario(
        argoverse2_root, tmp_path):
    spec = ScenarioSpec('train', 0, seed=1)
    write_scenario(tmp_path / 'x', spec, city_map(surroundings(1).city))
    ours, theirs = digest(tmp_path), digest(argoverse2_root)
    assert len(ours) == 2
    assert not {*ours.values()} & {*theirs.values()}
    assert not any(spec.scenario_id in name for name in theirs)


def test_each_split_gets_its_share():
    assert split_sizes(3) == dict(train=1, val=1, test=1)
    assert split_sizes(20) == dict(train=14, val=4, test=2)


@pytest.mark.parametrize(('kwargs', 'match'), [
    (dict(num_scenarios=2), 'at least 3'),
    (dict(seed=-1), 'seed'),
    (dict(workers=0), 'worker'),
])
def test_parameters_out_of_range_are_named(tmp_path, kwargs, match):
    with pytest.raises(ValueError, match=match):
        create_synthetic_argoverse2(tmp_path / 'set', **kwargs)
    assert not (tmp_path / 'set').exists()
