"""The reader agrees with av2 and says what is wrong with a file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from av2.datasets.motion_forecasting.scenario_serialization import (
    load_argoverse_scenario_parquet,
)
from av2.map.map_api import ArgoverseStaticMap

from mmturbox.datasets import DataError
from mmturbox.datasets.argoverse2 import (
    CATEGORIES,
    LANE_TYPES,
    MARK_TYPES,
    OBJECT_TYPES,
    Ragged,
    read_map,
    read_scenario,
    read_tracks,
)
from mmturbox.datasets.argoverse2.scenario import scenario_files

REAL = Path(__file__).parents[3] / 'shared' / 'data' / 'av2_scenario'


@pytest.fixture(params=['train', 'test', 'real'])
def folder(request):
    if request.param == 'real':
        if not REAL.is_dir():
            pytest.skip(f'no real Argoverse 2 scenario at {REAL}')
        return REAL
    root = request.getfixturevalue('argoverse2_root')
    folder, = (root / request.param).iterdir()
    return folder


@pytest.fixture
def copy(argoverse2_root, tmp_path):
    """A scenario to spoil: its folder."""
    folder, = (argoverse2_root / 'train').iterdir()
    return Path(shutil.copytree(folder, tmp_path / folder.name))


def spoil(folder, change) -> str:
    """Change the table of a scenario; what the reader then says."""
    path, _ = scenario_files(folder)
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(DataError) as error:
        read_scenario(folder)
    assert str(path) in str(error.value)
    return str(error.value)


def test_orders_are_those_of_av2():
    from av2.datasets.motion_forecasting.data_schema import (
        ObjectType,
        TrackCategory,
    )
    from av2.map.lane_segment import LaneMarkType, LaneType
    assert OBJECT_TYPES == tuple(kind.value for kind in ObjectType)
    assert [f'{name.upper()}_TRACK' for name in CATEGORIES] == [
        {'TRACK_FRAGMENT': 'FRAGMENT_TRACK'}.get(c.name, c.name)
        for c in sorted(TrackCategory, key=lambda c: c.value)
    ]
    assert LANE_TYPES == tuple(kind.value for kind in LaneType)
    assert MARK_TYPES == tuple(kind.value for kind in LaneMarkType)


def test_tracks_are_those_of_av2(folder):
    path, _ = scenario_files(folder)
    tracks, theirs = read_tracks(path), load_argoverse_scenario_parquet(path)
    assert tracks.scenario_id == theirs.scenario_id
    assert tracks.city == theirs.city_name
    np.testing.assert_array_equal(tracks.timestamps,
                                  theirs.timestamps_ns.astype(np.int64))
    assert tracks.ids[tracks.focal_index] == theirs.focal_track_id
    assert tracks.ids[tracks.av_index] == 'AV'
    assert sorted(tracks.ids) == sorted(t.track_id for t in theirs.tracks)
    for track in theirs.tracks:
        i = tracks.ids.index(track.track_id)
        assert OBJECT_TYPES[tracks.object_type[i]] == track.object_type.value
        assert tracks.category[i] == track.category.value
        steps = [state.timestep for state in track.object_states]
        valid = np.zeros(110, dtype=bool)
        valid[steps] = True
        np.testing.assert_array_equal(tracks.valid[i], valid)
        for name in ('observed', 'position', 'heading', 'velocity'):
            np.testing.assert_array_equal(
                getattr(tracks, name)[i, steps],
                np.array([getattr(s, name) for s in track.object_states]))
            assert not getattr(tracks, name)[i, ~valid].any()
    assert tracks.position.dtype == np.float64


def test_map_is_that_of_av2(folder):
    _, path = scenario_files(folder)
    ours, theirs = read_map(path), ArgoverseStaticMap.from_json(path)
    assert ours.lane_id.tolist() == list(theirs.vector_lane_segments)
    for i, lane in enumerate(theirs.vector_lane_segments.values()):
        assert ours.lane_id[i] == lane.id
        assert LANE_TYPES[ours.lane_type[i]] == lane.lane_type.value
        assert ours.is_intersection[i] == lane.is_intersection
        assert MARK_TYPES[ours.left_mark[i]] == lane.left_mark_type.value
        assert MARK_TYPES[ours.right_mark[i]] == lane.right_mark_type.value
        for mine, other in ((ours.left_neighbor, lane.left_neighbor_id),
                            (ours.right_neighbor, lane.right_neighbor_id)):
            assert mine[i] == (-1 if other is None else other)
        assert ours.predecessors[i].tolist() == lane.predecessors
        assert ours.successors[i].tolist() == lane.successors
        np.testing.assert_array_equal(ours.left_boundary[i],
                                      lane.left_lane_boundary.xyz)
        np.testing.assert_array_equal(ours.right_boundary[i],
                                      lane.right_lane_boundary.xyz)
    crossings = theirs.vector_pedestrian_crossings
    assert ours.crossing_id.tolist() == list(crossings)
    np.testing.assert_array_equal(
        ours.crossing_edges,
        [(c.edge1.xyz, c.edge2.xyz) for c in crossings.values()])
    assert ours.area_id.tolist() == list(theirs.vector_drivable_areas)
    for i, area in enumerate(theirs.vector_drivable_areas.values()):
        np.testing.assert_array_equal(ours.areas[i], area.xyz[:-1])


def test_centre_lines_are_those_of_the_file(folder):
    _, path = scenario_files(folder)
    lanes = json.loads(path.read_text())['lane_segments'].values()
    ours = read_map(path)
    assert len(ours.centerline) == len(lanes)
    for i, lane in enumerate(lanes):
        assert ours.centerline[i].tolist() == [[p['x'], p['y'], p['z']]
                                               for p in lane['centerline']]
    assert ours.num_points == sum(
        len(lane[f'{key}']) for lane in lanes for key in
        ('centerline', 'left_lane_boundary', 'right_lane_boundary')
    ) + 4 * len(ours.crossing_id)


def test_folder_and_parquet_file_give_the_same(copy):
    path, _ = scenario_files(copy)
    np.testing.assert_equal(
        vars(read_scenario(copy).tracks), vars(read_scenario(path).tracks))


def test_rows_in_another_order_give_the_same_arrays(copy):
    path, _ = scenario_files(copy)
    before = read_tracks(path)
    rows = pd.read_parquet(path).sample(frac=1., random_state=0)
    rows.to_parquet(path)
    after = read_tracks(path)
    order = [after.ids.index(name) for name in before.ids]
    for name in ('valid', 'observed', 'position', 'heading', 'velocity',
                 'object_type', 'category'):
        np.testing.assert_array_equal(
            getattr(before, name), getattr(after, name)[order])
    assert after.ids[after.av_index] == 'AV'
    assert order[before.focal_index] == after.focal_index


def test_ragged_rows_keep_their_lengths():
    rows = Ragged.pack([[1, 2], [], [3]], (), np.int64)
    assert len(rows) == 3
    assert [rows[i].tolist() for i in range(3)] == [[1, 2], [], [3]]
    assert rows[-1].tolist() == [3]
    with pytest.raises(IndexError):
        rows[3]
    empty = Ragged.pack([], (3, ), np.float64)
    assert len(empty) == 0 and empty.values.shape == (0, 3)


def test_missing_columns_are_named(copy):
    text = spoil(copy, lambda t: t.drop(columns=['heading', 'city']))
    assert "['city', 'heading']" in text


def test_scenario_without_ego_vehicle_is_refused(copy):
    text = spoil(copy, lambda t: t[t.track_id != 'AV'])
    assert "ego vehicle, track 'AV', is not in it" in text


def test_scenario_without_focal_track_is_refused(copy):
    text = spoil(copy, lambda t: t[t.track_id != t.focal_track_id])
    assert 'the focal track' in text


@pytest.mark.parametrize(('column', 'value', 'match'), [
    ('timestep', 110, 'timesteps 0 to 110 are not within 0 to 109'),
    ('object_type', 'tram', "object types ['tram'] are none of"),
    ('object_category', 4, 'object_category'),
    ('position_x', np.nan, "missing in the columns ['position_x']"),
    ('velocity_y', np.inf, 'not finite'),
    ('track_id', None, "missing in the columns ['track_id']"),
    ('heading', 'north', 'cannot be read'),
])
def test_values_that_cannot_be_are_refused(copy, column, value, match):

    def change(table):
        if column == 'heading':
            table[column] = table[column].astype(str)
        table.loc[0, column] = value
        return table

    assert match in spoil(copy, change)


def test_a_step_that_is_there_twice_is_refused(copy):
    text = spoil(copy, lambda t: pd.concat([t, t[5:6]]))
    assert 'has step' in text and 'twice' in text


def test_table_without_rows_is_refused(copy):
    assert 'it has no rows' in spoil(copy, lambda t: t[:0])


def test_parquet_that_was_cut_short_is_refused(copy):
    path, _ = scenario_files(copy)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=f'{path.name}.*cannot be read'):
        read_scenario(copy)


def test_missing_map_is_named(copy):
    _, path = scenario_files(copy)
    path.unlink()
    with pytest.raises(DataError, match=f'{path.name} does not exist'):
        read_scenario(copy)


@pytest.mark.parametrize(('change', 'match'), [
    (lambda m: m.pop('lane_segments'), "lacks 'lane_segments'"),
    (lambda m: first(m).pop('centerline'), "lacks 'centerline'"),
    (lambda m: first(m).update(lane_type='TRAM'),
     "the lane_type 'TRAM', known are VEHICLE"),
    (lambda m: next(iter(m['pedestrian_crossings'].values()))['edge1'].pop(),
     'inhomogeneous|reshape'),
])
def test_map_with_something_else_is_refused(copy, change, match):
    _, path = scenario_files(copy)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match=match) as error:
        read_scenario(copy)
    assert str(path) in str(error.value)


def first(data):
    return next(iter(data['lane_segments'].values()))


def test_map_that_was_cut_short_is_refused(copy):
    _, path = scenario_files(copy)
    path.write_text(path.read_text()[:1000])
    with pytest.raises(DataError, match=f'{path.name} is no Argoverse 2'):
        read_scenario(copy)


def test_folder_without_scenario_lists_what_it_has(tmp_path):
    (tmp_path / 'city_SE3_egovehicle.feather').touch()
    with pytest.raises(DataError, match='0 files.*city_SE3_egovehicle'):
        read_scenario(tmp_path)
