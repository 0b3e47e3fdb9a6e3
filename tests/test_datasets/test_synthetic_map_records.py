"""Paths in the three-part form of nuScenes' maps."""

import numpy as np
import pytest

from mmturbox.datasets.synthetic.city import City
from mmturbox.datasets.synthetic.map_records import arcline_records
from mmturbox.datasets.synthetic.paths import ArcPath


def test_records_of_a_path_follow_each_other():
    city = City.generate(np.random.default_rng((0, 99)))
    for lane in city.lanes:
        records = arcline_records(lane.path)
        for one, two in zip(records[:-1], records[1:], strict=True):
            assert one['end_pose'] == two['start_pose']
        assert records[0]['start_pose'][:2] == list(lane.path.start[:2])
        assert records[-1]['end_pose'][:2] == list(lane.path.end[:2])


@pytest.mark.parametrize('pieces, shapes, lengths', [
    (((9., 0.), ), ['LSL'], [[0., 9., 0.]]),
    (((9., -.1), ), ['RSL'], [[9., 0., 0.]]),
    (((5., 0.), (6., -.1), (7., 0.)), ['LSR', 'LSL'],
     [[0., 5., 6.], [0., 7., 0.]]),
    (((5., .1), (6., 0.), (7., -.1)), ['LSR'], [[5., 6., 7.]]),
    (((5., .1), (6., -.1), (7., .1)), ['LSR', 'LSL'],
     [[5., 0., 6.], [7., 0., 0.]]),
    (((5., .1), (6., .2)), ['LSL', 'LSL'], [[5., 0., 0.], [6., 0., 0.]]),
])
def test_paths_split_into_arc_line_arc(pieces, shapes, lengths):
    from nuscenes.map_expansion.arcline_path_utils import discretize_lane
    path = ArcPath((1., 2., 3.), pieces)
    records = arcline_records(path)
    assert [r['shape'] for r in records] == shapes
    assert [r['segment_length'] for r in records] == lengths
    np.testing.assert_allclose(
        discretize_lane(records, .5)[-1][:2], path.end[:2], atol=1e-6)
